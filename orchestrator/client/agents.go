package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"chiffon/orchestrator/view"
)

// An Agent is a view.Agent that keeps the JSON it came as.
type Agent struct {
	view.Agent
	JSON json.RawMessage
}

// UnmarshalJSON decodes the view and keeps the text.
func (a *Agent) UnmarshalJSON(data []byte) error {
	a.JSON = bytes.Clone(data)
	return json.Unmarshal(data, &a.Agent)
}

// MarshalJSON is the text as it came, or the view's when there is none.
func (a Agent) MarshalJSON() ([]byte, error) {
	if a.JSON != nil {
		return a.JSON, nil
	}
	return json.Marshal(a.Agent)
}

// Agents is the answer to "which agents are there".
type Agents struct {
	Agents []Agent         `json:"agents"`
	JSON   json.RawMessage `json:"-"`
}

// Agents lists the registered agents.
func (c *Client) Agents(ctx context.Context) (list Agents, err error) {
	var raw json.RawMessage
	if _, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/agents", into: &raw}); err != nil {
		return Agents{}, err
	}
	err = json.Unmarshal(raw, &list)
	list.JSON = raw
	return list, err
}

// Agent reads one agent by its id: a *Problem with status 404 when there is none.
func (c *Client) Agent(ctx context.Context, id string) (agent Agent, err error) {
	path, err := named("agents", id)
	if err != nil {
		return Agent{}, err
	}
	_, err = c.do(ctx, call{method: http.MethodGet, path: path, into: &agent})
	return agent, err
}

// A Pause says how long an agent gets no new work: either ForSeconds or Until.
type Pause struct {
	ForSeconds int        `json:"for_seconds,omitempty"`
	Until      *time.Time `json:"until,omitempty"`
	Message    string     `json:"message,omitempty"`
}

// A Drain says when what an agent still runs is stopped.
type Drain struct {
	DeadlineSeconds int    `json:"deadline_seconds"`
	Message         string `json:"message,omitempty"`
}

// PauseAgent keeps new work from an agent for a while, and returns it as it is then: a *Problem with status 404 when
// there is none. So do the next two.
func (c *Client) PauseAgent(ctx context.Context, id string, how Pause) (Agent, error) {
	return c.tell(ctx, id, "pause", how)
}

// ResumeAgent ends a pause and a drain.
func (c *Client) ResumeAgent(ctx context.Context, id string) (Agent, error) {
	return c.tell(ctx, id, "resume", nil)
}

// DrainAgent keeps new work from an agent until it is resumed. It does not wait until the agent is empty.
func (c *Client) DrainAgent(ctx context.Context, id string, how Drain) (Agent, error) {
	return c.tell(ctx, id, "drain", how)
}

func (c *Client) tell(ctx context.Context, id, verb string, how any) (agent Agent, err error) {
	path, err := named("agents", id)
	if err != nil {
		return Agent{}, err
	}
	_, err = c.do(ctx, call{method: http.MethodPost, path: path + "/" + verb, body: how, into: &agent})
	return agent, err
}

// Checks is what the server finds when it looks at itself.
type Checks struct {
	Version string       `json:"version"`
	Checks  []view.Check `json:"checks"`
}

// Checks asks the server to look at itself.
func (c *Client) Checks(ctx context.Context) (found Checks, err error) {
	_, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/checks", into: &found})
	return found, err
}
