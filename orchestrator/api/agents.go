package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/view"
	"chiffon/pkg/subject"
)

// AgentList is every agent there is.
type AgentList struct {
	Agents []view.Agent `json:"agents" nullable:"false"`
}

type agentsAnswer struct{ Body AgentList }

type agentAnswer struct{ Body view.Agent }

type agentPath struct {
	ID string `path:"id" minLength:"1" maxLength:"63"`
}

// Checks is what doctor has found.
type Checks struct {
	Version string       `json:"version"`
	Checks  []view.Check `json:"checks" nullable:"false"`
}

type checksAnswer struct{ Body Checks }

// A Health says whether the server lives, or is ready.
type Health struct {
	Status string `json:"status" enum:"ok,loading,unavailable"`
	Detail string `json:"detail,omitempty"`
}

type healthAnswer struct {
	Status int
	Body   Health
}

func (a *API) agents() {
	huma.Register(a.huma, operation(http.MethodGet, "/v1/agents", "list-agents", "Every agent there is"), a.everyone)
	huma.Register(a.huma, operation(http.MethodGet, "/v1/agents/{id}", "get-agent", "One agent, with what it offers", answers(404)), a.agent)
}

func (a *API) everyone(context.Context, *struct{}) (*agentsAnswer, error) {
	list := AgentList{Agents: []view.Agent{}}
	for _, agent := range a.cfg.Agents.Agents(time.Now()) {
		v := agent.View()
		for i := range v.WorkTypes {
			v.WorkTypes[i].Parameters = nil // one agent shows them
		}
		list.Agents = append(list.Agents, v)
	}
	return &agentsAnswer{Body: list}, nil
}

func (a *API) agent(_ context.Context, in *agentPath) (*agentAnswer, error) {
	agent, ok := a.cfg.Agents.Agent(subject.AgentID(in.ID), time.Now())
	if !ok {
		return nil, problem(http.StatusNotFound, "no agent "+in.ID+" has registered", Detail{Location: "path.id", Message: "is unknown"})
	}
	return &agentAnswer{Body: agent.View()}, nil
}

func (a *API) health() {
	huma.Register(a.huma, operation(http.MethodGet, "/v1/checks", "check", "What doctor finds on the server"), a.checks)
	huma.Register(a.huma, operation(http.MethodGet, "/healthz", "healthz", "Does the server live?", open), func(context.Context, *struct{}) (*healthAnswer, error) {
		return &healthAnswer{Status: http.StatusOK, Body: Health{Status: "ok"}}, nil
	})
	huma.Register(a.huma, operation(http.MethodGet, "/readyz", "readyz", "Can it be asked everything?", open,
		described("503 while the views are still being folded, or the broker is out of reach.")), a.ready)
}

func (a *API) checks(ctx context.Context, _ *struct{}) (*checksAnswer, error) {
	return &checksAnswer{Body: Checks{Version: a.cfg.Release, Checks: append([]view.Check{}, a.cfg.Checks(ctx)...)}}, nil
}

func (a *API) ready(context.Context, *struct{}) (*healthAnswer, error) {
	loading, done, of := a.cfg.Ledger.Loading()
	switch {
	case !a.cfg.Client.Connected():
		return &healthAnswer{Status: http.StatusServiceUnavailable, Body: Health{Status: "unavailable", Detail: "the broker is out of reach"}}, nil
	case loading:
		return &healthAnswer{Status: http.StatusServiceUnavailable, Body: Health{Status: "loading", Detail: fmt.Sprintf("folded %d of %d entries", done, of)}}, nil
	}
	return &healthAnswer{Status: http.StatusOK, Body: Health{Status: "ok"}}, nil
}
