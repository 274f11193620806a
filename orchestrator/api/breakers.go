package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/view"
	"chiffon/pkg/subject"
)

// BreakerList is the breaker of every agent.
type BreakerList struct {
	Breakers []view.Breaker `json:"breakers" nullable:"false"`
}

type breakersAnswer struct{ Body BreakerList }

type breakerAnswer struct{ Body view.Breaker }

type breakerInput struct {
	AgentID string `path:"agent_id" minLength:"1" maxLength:"63"`
}

func (a *API) breakers() {
	huma.Register(a.huma, operation(http.MethodGet, "/v1/breakers", "list-breakers", "The breaker of every agent",
		described("A breaker opens after five failures in a row, and keeps new work from its agent for a minute. Then the agent is asked for a sign of life: half-open.")), a.everyBreaker)
	huma.Register(a.huma, operation(http.MethodPost, "/v1/breakers/{agent_id}/reset", "reset-breaker", "Close an agent's breaker", answers(404, 503)), a.reset)
}

func (a *API) everyBreaker(context.Context, *struct{}) (*breakersAnswer, error) {
	list := BreakerList{Breakers: []view.Breaker{}}
	for _, agent := range a.cfg.Agents.Agents(time.Now()) {
		b, newer := a.cfg.Breakers.View(agent.AgentID)
		if newer {
			b.State, b.Reason = "open", "stored by a newer version of the orchestrator: upgrade this one, or reset the breaker"
		}
		list.Breakers = append(list.Breakers, b)
	}
	return &breakersAnswer{Body: list}, nil
}

func (a *API) reset(ctx context.Context, in *breakerInput) (*breakerAnswer, error) {
	if _, ok := a.cfg.Agents.Agent(subject.AgentID(in.AgentID), time.Now()); !ok {
		return nil, problem(http.StatusNotFound, "no agent "+in.AgentID+" has registered", Detail{Location: "path.agent_id", Message: "is unknown"})
	}
	b, err := a.cfg.Gate.Reset(ctx, subject.AgentID(in.AgentID), admin)
	if err != nil {
		return nil, problemOf(err)
	}
	return &breakerAnswer{Body: b}, nil
}
