package api

import (
	"context"
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

// An AgentPath names one agent. Exported, since it is embedded.
type AgentPath struct {
	ID string `path:"id" minLength:"1" maxLength:"63"`
}

// admin is who speaks: there is one credential.
const admin = "admin"

// A Pause keeps new work from an agent until a moment. Either ForSeconds or Until is given.
type Pause struct {
	ForSeconds int        `json:"for_seconds,omitempty" minimum:"1" maximum:"315360000"`
	Until      *time.Time `json:"until,omitempty" doc:"In the future"`
	Message    string     `json:"message,omitempty" maxLength:"200" doc:"Why, for people"`
}

// A Drain keeps new work from an agent until it is resumed.
type Drain struct {
	DeadlineSeconds int    `json:"deadline_seconds" minimum:"0" maximum:"315360000" doc:"What still runs then is stopped by its runner"`
	Message         string `json:"message,omitempty" maxLength:"200" doc:"Why, for people"`
}

type pauseInput struct {
	AgentPath
	Body Pause
}

type drainInput struct {
	AgentPath
	Body Drain
}

type resumeInput struct{ AgentPath }

// Checks is what doctor has found.
type Checks struct {
	Version string       `json:"version"`
	Checks  []view.Check `json:"checks" nullable:"false"`
}

type checksAnswer struct{ Body Checks }

// A Health says whether the server lives, or is ready.
type Health struct {
	Status string `json:"status" enum:"ok,loading,unavailable,stopping"`
	Detail string `json:"detail,omitempty"`
}

type healthAnswer struct {
	Status int
	Body   Health
}

func (a *API) agents() {
	huma.Register(a.huma, operation(http.MethodGet, "/v1/agents", "list-agents", "Every agent there is"), a.everyone)
	huma.Register(a.huma, operation(http.MethodGet, "/v1/agents/{id}", "get-agent", "One agent, with what it offers", answers(404)), a.agent)
	huma.Register(a.huma, operation(http.MethodPost, "/v1/agents/{id}/pause", "pause-agent", "Give an agent no new work for a while", answers(404, 422, 503),
		described("What it runs goes on. It is resumed by itself, or by resume.")), a.pause)
	huma.Register(a.huma, operation(http.MethodPost, "/v1/agents/{id}/resume", "resume-agent", "Let an agent have work again", answers(404, 503),
		described("Ends a pause and a drain. A breaker that is open stays so: see reset-breaker.")), a.resume)
	huma.Register(a.huma, operation(http.MethodPost, "/v1/agents/{id}/drain", "drain-agent", "Give an agent no new work until it is resumed", answers(404, 422, 503),
		described("What it runs goes on until the deadline; then its runner stops it, with 5002.")), a.drain)
}

func (a *API) everyone(context.Context, *struct{}) (*agentsAnswer, error) {
	list := AgentList{Agents: []view.Agent{}}
	now := time.Now()
	for _, agent := range a.cfg.Agents.Agents(now) {
		v := agent.View()
		a.cfg.Gate.Describe(&v, now)
		for i := range v.WorkTypes {
			v.WorkTypes[i].Parameters = nil // one agent shows them
		}
		list.Agents = append(list.Agents, v)
	}
	return &agentsAnswer{Body: list}, nil
}

func (a *API) agent(_ context.Context, in *AgentPath) (*agentAnswer, error) {
	now := time.Now()
	agent, ok := a.cfg.Agents.Agent(subject.AgentID(in.ID), now)
	if !ok {
		return nil, a.noAgent(in.ID)
	}
	v := agent.View()
	a.cfg.Gate.Describe(&v, now)
	return &agentAnswer{Body: v}, nil
}

// until is the moment that a body names, by one of two fields.
func until(field string, seconds int, at *time.Time, now time.Time) (time.Time, error) {
	wrong := func(text string) (time.Time, error) {
		return now, problem(http.StatusUnprocessableEntity, text, Detail{Location: "body." + field, Message: text})
	}
	switch {
	case (seconds > 0) == (at != nil):
		return wrong("give either for_seconds or until")
	case seconds > 0:
		return now.Add(time.Duration(seconds) * time.Second), nil
	case !at.After(now):
		return wrong("until is " + at.UTC().Format(time.RFC3339) + ", which is over")
	}
	return *at, nil
}

func (a *API) pause(ctx context.Context, in *pauseInput) (*agentAnswer, error) {
	if _, err := a.agent(ctx, &in.AgentPath); err != nil {
		return nil, err
	}
	end, err := until("until", in.Body.ForSeconds, in.Body.Until, time.Now())
	if err != nil {
		return nil, err
	}
	return a.said(ctx, &in.AgentPath, a.cfg.Gate.Pause(ctx, subject.AgentID(in.ID), end, in.Body.Message, admin))
}

func (a *API) resume(ctx context.Context, in *resumeInput) (*agentAnswer, error) {
	if _, err := a.agent(ctx, &in.AgentPath); err != nil {
		return nil, err
	}
	return a.said(ctx, &in.AgentPath, a.cfg.Gate.Resume(ctx, subject.AgentID(in.ID), admin))
}

func (a *API) drain(ctx context.Context, in *drainInput) (*agentAnswer, error) {
	if _, err := a.agent(ctx, &in.AgentPath); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(time.Duration(in.Body.DeadlineSeconds) * time.Second)
	return a.said(ctx, &in.AgentPath, a.cfg.Gate.Drain(ctx, subject.AgentID(in.ID), deadline, in.Body.Message, admin))
}

// said answers with the agent as it is after a word of a person.
func (a *API) said(ctx context.Context, path *AgentPath, err error) (*agentAnswer, error) {
	if err != nil {
		return nil, problemOf(err)
	}
	return a.agent(ctx, path)
}

func (a *API) health() {
	huma.Register(a.huma, operation(http.MethodGet, "/v1/checks", "check", "What doctor finds on the server"), a.checks)
	huma.Register(a.huma, operation(http.MethodGet, "/healthz", "healthz", "Does the server live?", open), func(context.Context, *struct{}) (*healthAnswer, error) {
		return &healthAnswer{Status: http.StatusOK, Body: Health{Status: "ok"}}, nil
	})
	huma.Register(a.huma, operation(http.MethodGet, "/readyz", "readyz", "Can it be asked everything?", open,
		described("503 while the views are still being folded or are behind the task log, while the broker is out of reach or has no room for anything new, while nobody leads, and when the server is about to stop.")), a.ready)
}

func (a *API) checks(ctx context.Context, _ *struct{}) (*checksAnswer, error) {
	return &checksAnswer{Body: Checks{Version: a.cfg.Release, Checks: append([]view.Check{}, a.cfg.Checks(ctx)...)}}, nil
}

func (a *API) ready(context.Context, *struct{}) (*healthAnswer, error) {
	if status, why := a.unready(time.Now()); status != "" {
		return &healthAnswer{Status: http.StatusServiceUnavailable, Body: Health{Status: status, Detail: why}}, nil
	}
	if a.cfg.Told != nil {
		a.cfg.Told()
	}
	return &healthAnswer{Status: http.StatusOK, Body: Health{Status: "ok"}}, nil
}
