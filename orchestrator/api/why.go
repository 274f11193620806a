package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/view"
	"chiffon/orchestrator/why"
	"chiffon/pkg/near"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

type whyAnswer struct{ Body view.Why }

type historyAnswer struct{ Body view.History }

type historyInput struct {
	TaskPath
	Limit  int    `query:"limit" minimum:"1" maximum:"5000" default:"500" doc:"Entries a page; late outcomes come on top"`
	Cursor string `query:"cursor" doc:"next_cursor of the answer before"`
}

func (a *API) reasons() {
	huma.Register(a.huma, operation(http.MethodGet, "/v1/tasks/{id}/why", "why-task", "Why a task is where it is", answers(404, 409, 503),
		described("Sentences for people, computed from the log and the agents as they are now. Programs read the task itself.")), a.whyTask)
	huma.Register(a.huma, operation(http.MethodGet, "/v1/agents/{id}/why", "why-agent", "Why an agent gets work, or none", answers(404, 503)), a.whyAgent)
	huma.Register(a.huma, operation(http.MethodGet, "/v1/tasks/{id}/history", "task-history", "Every entry of a task's log", answers(404, 409, 422, 503),
		described("In the order of the log, void entries too, and the outcomes that came too late to be recorded, by their time.")), a.history)
}

// tell adds to a task as the log has it what rests on the agents as they are now.
func tell(v *view.Task, t ledger.Task, f why.Facts) {
	v.WaitingFor = why.WaitingFor(t, f)
	if since := why.SilentSince(t, f); !since.IsZero() {
		v.SilentSince = new(since.UTC().Round(0))
	}
}

// facts is what reasons rest on now.
func (a *API) facts(now time.Time) why.Facts {
	f := a.cfg.Dispatcher.Facts(now)
	f.Shut = func(id subject.AgentID) gate.Shut { return a.cfg.Gate.Shut(id, now) }
	return f
}

func (a *API) whyTask(ctx context.Context, in *TaskPath) (*whyAnswer, error) {
	id, log, err := a.read(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	t, ok := a.cfg.Ledger.Get(id)
	if !ok {
		return nil, stillLoading() // its log is there, its view is about to be
	}
	f := a.facts(time.Now())
	if f.Late, err = a.cfg.Ledger.Late(ctx, id, log); err != nil {
		return nil, a.about(problemOf(err), id, "")
	}
	f.Result = t.Describe(log).Result
	return &whyAnswer{Body: why.Task(t, f)}, nil
}

// read finds a task and its log.
func (a *API) read(ctx context.Context, prefix string) (id subject.TaskID, log []tasklog.Entry, err error) {
	if id, err = a.resolve(prefix); err != nil {
		return "", nil, err
	}
	if log, err = a.cfg.Client.Task(ctx, id); err != nil {
		return id, nil, a.about(problemOf(err), id, "")
	}
	if s := tasklog.Fold(log); s.Phase == tasklog.PhaseNone && s.Stray == nil {
		return id, nil, problemOf(dispatch.ErrUnknown)
	}
	return id, log, nil
}

func (a *API) whyAgent(_ context.Context, in *AgentPath) (*whyAnswer, error) {
	if loading, _, _ := a.cfg.Ledger.Loading(); loading {
		return nil, stillLoading()
	}
	now := time.Now()
	agent, ok := a.cfg.Agents.Agent(subject.AgentID(in.ID), now)
	if !ok {
		return nil, a.noAgent(in.ID)
	}
	open := a.cfg.Ledger.Open(func(t *ledger.Task) bool {
		return t.Type == agent.AgentType || t.State.Holder == in.ID
	})
	return &whyAnswer{Body: why.Agent(agent, open, a.facts(now))}, nil
}

// noAgent says that an agent is unknown, and which one may be meant.
func (a *API) noAgent(id string) *Problem {
	text := "no agent " + id + " has registered"
	var known []string
	for _, agent := range a.cfg.Agents.Agents(time.Now()) {
		known = append(known, string(agent.AgentID))
	}
	if meant := near.Word(id, known, 2); meant != "" {
		text += ": did you mean " + meant + "?"
	}
	return problem(http.StatusNotFound, text, Detail{Location: "path.id", Message: "is unknown"})
}

func (a *API) history(ctx context.Context, in *historyInput) (*historyAnswer, error) {
	id, err := a.resolve(in.ID)
	if err != nil {
		return nil, err
	}
	from, err := ledger.ParseCursor(in.Cursor)
	if err != nil {
		return nil, problem(http.StatusUnprocessableEntity, ledger.ErrCursor.Error(), Detail{Location: "query.cursor", Message: ledger.ErrCursor.Error()})
	}
	h := view.History{TaskID: string(id), Events: []view.Event{}}
	page, more, err := a.cfg.Ledger.History(ctx, id, from.Tasks, in.Limit)
	if err != nil {
		return nil, a.about(problemOf(err), id, "")
	}
	if len(page) == 0 && in.Cursor == "" {
		return nil, problemOf(dispatch.ErrUnknown)
	}
	h.Events = append(h.Events, page...)
	if more {
		for _, ev := range page {
			if ev.Kind != ledger.KindLate {
				h.NextCursor = ev.ID
			}
		}
	}
	return &historyAnswer{Body: h}, nil
}
