package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
)

// A Task is a view.Task that keeps the JSON it came as: encoding it gives that back, newer fields included.
type Task struct {
	view.Task
	JSON json.RawMessage
}

// UnmarshalJSON decodes the view and keeps the text.
func (t *Task) UnmarshalJSON(data []byte) error {
	t.JSON = bytes.Clone(data)
	return json.Unmarshal(data, &t.Task)
}

// MarshalJSON is the text as it came, or the view's when there is none.
func (t Task) MarshalJSON() ([]byte, error) {
	if t.JSON != nil {
		return t.JSON, nil
	}
	return json.Marshal(t.Task)
}

// A Submission is a task to be. AgentType, WorkType and Parameters (a JSON object) are required.
type Submission struct {
	AgentType    string            `json:"agent_type"`
	WorkType     string            `json:"work_type"`
	Parameters   json.RawMessage   `json:"parameters"`
	Hints        *view.Hints       `json:"hints,omitempty"`
	Priority     string            `json:"priority,omitempty"`
	Agent        string            `json:"agent,omitempty"`
	On           map[string]string `json:"on,omitempty"`
	Needs        []string          `json:"needs,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Name         string            `json:"name,omitempty"`
	RequestID    string            `json:"request_id,omitempty"`            // made when empty, so that a repetition is none
	QueueTimeout int               `json:"queue_timeout_seconds,omitempty"` // seconds; 0 means no limit
}

// Submit hands in a task and returns it as the server has it; known is true when the same request_id with the same content
// was there already. The task is stored when Submit returns without error. A *Problem with status 422 means that it
// can't be accepted as it is.
func (c *Client) Submit(ctx context.Context, s Submission) (task Task, known bool, err error) {
	if s.RequestID == "" {
		s.RequestID = string(message.NewUUID())
	}
	status, err := c.do(ctx, call{method: http.MethodPost, path: "/v1/tasks", body: s, into: &task,
		repeat: "with the same request id it is one task, and that is " + s.RequestID})
	return task, status == http.StatusOK, err
}

// Task reads one task by its id or any unique prefix of it: a *Problem with status 404 when there is none, 409 when
// several begin so.
func (c *Client) Task(ctx context.Context, id string) (task Task, err error) {
	path, err := named("tasks", id)
	if err != nil {
		return Task{}, err
	}
	_, err = c.do(ctx, call{method: http.MethodGet, path: path, into: &task})
	return task, err
}

// A TaskQuery says which tasks to list. The zero value means all.
type TaskQuery struct {
	States    []string
	AgentType string
	Agent     string
	WorkType  string
	Labels    map[string]string
	Since     time.Time
	Until     time.Time
	Limit     int    // tasks a page, at most 500; 0 means the server's default, 50
	Cursor    string // where to go on: Page.NextCursor
}

func (q TaskQuery) values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Add(name, value)
		}
	}
	for _, s := range q.States {
		set("state", s)
	}
	set("agent_type", q.AgentType)
	set("agent", q.Agent)
	set("work_type", q.WorkType)
	for key, value := range q.Labels {
		set("label", key+"="+value)
	}
	if !q.Since.IsZero() {
		set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		set("until", q.Until.UTC().Format(time.RFC3339Nano))
	}
	if q.Limit > 0 {
		set("limit", strconv.Itoa(q.Limit))
	}
	set("cursor", q.Cursor)
	return v
}

// A Page of tasks, newest first, without parameters and outputs. NextCursor is empty on the last one.
type Page struct {
	Tasks      []Task          `json:"tasks"`
	NextCursor string          `json:"next_cursor"`
	JSON       json.RawMessage `json:"-"`
}

// Page reads the page of q that begins at q.Cursor.
func (c *Client) Page(ctx context.Context, q TaskQuery) (page Page, err error) {
	var raw json.RawMessage
	if _, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/tasks", query: q.values(), into: &raw}); err != nil {
		return Page{}, err
	}
	err = json.Unmarshal(raw, &page)
	page.JSON = raw
	return page, err
}

// Tasks lists all tasks of q, newest first, a page at a time. It ends after the first error.
func (c *Client) Tasks(ctx context.Context, q TaskQuery) iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		for {
			page, err := c.Page(ctx, q)
			if err != nil {
				yield(Task{}, err)
				return
			}
			for _, t := range page.Tasks {
				if !yield(t, nil) {
					return
				}
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				return
			}
		}
	}
}

// A Cancellation says why and how a task is to be stopped. The zero value is a plain cancel.
type Cancellation struct {
	Reason       string `json:"reason,omitempty"`
	GraceSeconds int    `json:"grace_seconds,omitempty"` // between the signal and the kill; 0 leaves it to the work type
	Signal       string `json:"signal,omitempty"`        // TERM, INT, HUP, QUIT, USR1, USR2 or KILL; "" leaves it to the work type
	Force        bool   `json:"force,omitempty"`         // end it although nobody knows what its holder does
}

// Cancel asks for the end of a task and returns it as it stands then: cancelled if it had not begun, cancelling, or the
// end it had before. repeated is true when there was nothing to do: it had ended, or was being cancelled already.
func (c *Client) Cancel(ctx context.Context, id string, how Cancellation) (task Task, repeated bool, err error) {
	path, err := named("tasks", id)
	if err != nil {
		return Task{}, false, err
	}
	status, err := c.do(ctx, call{method: http.MethodPost, path: path + "/cancel", body: how, into: &task, repeat: "to repeat a cancel is harmless"})
	return task, status == http.StatusOK, err
}

// Wait returns the task when it has ended.
func (c *Client) Wait(ctx context.Context, id string) (Task, error) {
	for event, err := range c.Events(ctx, id, EventQuery{Follow: true}) {
		if err != nil {
			return Task{}, err
		}
		if task, ok := event.Ended(); ok {
			return task, nil
		}
	}
	return c.Task(ctx, id)
}
