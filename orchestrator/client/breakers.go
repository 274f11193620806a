package client

import (
	"context"
	"encoding/json"
	"net/http"

	"chiffon/orchestrator/view"
)

// Breakers is the answer to "whose breakers are open".
type Breakers struct {
	Breakers []view.Breaker  `json:"breakers"`
	JSON     json.RawMessage `json:"-"`
}

// Breakers lists the breakers of all agents.
func (c *Client) Breakers(ctx context.Context) (list Breakers, err error) {
	var raw json.RawMessage
	if _, err = c.do(ctx, call{method: http.MethodGet, path: "/v1/breakers", into: &raw}); err != nil {
		return Breakers{}, err
	}
	err = json.Unmarshal(raw, &list)
	list.JSON = raw
	return list, err
}

// ResetBreaker closes an agent's breaker: a *Problem with status 404 when there is no such agent.
func (c *Client) ResetBreaker(ctx context.Context, id string) (b view.Breaker, err error) {
	path, err := named("breakers", id)
	if err != nil {
		return view.Breaker{}, err
	}
	_, err = c.do(ctx, call{method: http.MethodPost, path: path + "/reset", into: &b})
	return b, err
}
