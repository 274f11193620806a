package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
)

// A Why is a view.Why that keeps the JSON it came as.
type Why struct {
	view.Why
	JSON json.RawMessage
}

// UnmarshalJSON decodes the view and keeps the text.
func (w *Why) UnmarshalJSON(data []byte) error {
	w.JSON = bytes.Clone(data)
	return json.Unmarshal(data, &w.Why)
}

// MarshalJSON is the text as it came, or the view's when there is none.
func (w Why) MarshalJSON() ([]byte, error) {
	if w.JSON != nil {
		return w.JSON, nil
	}
	return json.Marshal(w.Why)
}

// WhyTask asks why a task, named by its id or a unique prefix of it, is where it is.
func (c *Client) WhyTask(ctx context.Context, id string) (Why, error) {
	return c.why(ctx, "tasks", id)
}

// WhyAgent asks why an agent gets work, or none.
func (c *Client) WhyAgent(ctx context.Context, id string) (Why, error) {
	return c.why(ctx, "agents", id)
}

func (c *Client) why(ctx context.Context, collection, id string) (w Why, err error) {
	path, err := named(collection, id)
	if err != nil {
		return Why{}, err
	}
	_, err = c.do(ctx, call{method: http.MethodGet, path: path + "/why", into: &w})
	return w, err
}

// A History is a page of a task's log. NextCursor is empty on the last one.
type History struct {
	view.History
	JSON json.RawMessage
}

// History reads the page of a task's log that begins at a cursor; the first one begins at "".
func (c *Client) History(ctx context.Context, id, cursor string) (page History, err error) {
	path, err := named("tasks", id)
	if err != nil {
		return History{}, err
	}
	query := url.Values{"limit": {"5000"}} // the most: for each page the server reads the log from its beginning
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	var raw json.RawMessage
	if _, err = c.do(ctx, call{method: http.MethodGet, path: path + "/history", query: query, into: &raw}); err != nil {
		return History{}, err
	}
	page.JSON = raw
	return page, json.Unmarshal(raw, &page.History)
}

// Retry starts an ended task anew, as another task that names it; known is true when that was done before. A task has one
// retry, however often it is asked for; another true makes another one. A *Problem with status 409 means that the task
// has not ended.
func (c *Client) Retry(ctx context.Context, id string, another bool) (task Task, known bool, err error) {
	path, err := named("tasks", id)
	if err != nil {
		return Task{}, false, err
	}
	k := call{method: http.MethodPost, path: path + "/retry", into: &task, repeat: "asked for again it is one task"}
	if another {
		k.repeat = "look whether there is another task in its place before you ask again"
		k.header = http.Header{"Idempotency-Key": {string(message.NewUUID())}}
	}
	status, err := c.do(ctx, k)
	return task, status == http.StatusOK, err
}
