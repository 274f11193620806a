package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

type taskAnswer struct {
	Status   int
	Location string `header:"Location" doc:"Where the task is"`
	Body     view.Task
}

// A TaskPath names one task. Exported, since it is embedded: huma fills no field of an embedded type that is not.
type TaskPath struct {
	ID string `path:"id" minLength:"1" maxLength:"255" doc:"The task's id, or any prefix of it that no other task has"`
}

func (a *API) tasks() {
	huma.Register(a.huma, a.submission(), a.submit)
	post := a.huma.OpenAPI().Paths["/v1/tasks"].Post
	post.RequestBody = a.eitherBody() // huma knows only that it is read raw
	also200(post, "Accepted before: here is its task")
	huma.Register(a.huma, operation(http.MethodGet, "/v1/tasks", "list-tasks", "List tasks, newest first", answers(422, 503)), a.list)
	huma.Register(a.huma, operation(http.MethodGet, "/v1/tasks/{id}", "get-task", "One task as it is now", answers(404, 409, 503)), a.task)
	huma.Register(a.huma, operation(http.MethodPost, "/v1/tasks/{id}/cancel", "cancel-task", "Stop a task", answers(404, 409, 422, 503),
		described("Work that has not begun never begins. Work that runs is stopped by its runner; only then is the task cancelled. 202: recorded, it is cancelled or being stopped. 200: nothing was to be done, it had ended or was being stopped already."),
		func(op *huma.Operation) { op.DefaultStatus = http.StatusAccepted }), a.cancel)
	also200(a.huma.OpenAPI().Paths["/v1/tasks/{id}/cancel"].Post, "It had ended before, or was being stopped already")
}

// also200 documents that an operation which accepts may answer 200 as well.
func also200(op *huma.Operation, meaning string) {
	ok := *op.Responses["202"]
	ok.Description = meaning
	op.Responses["200"] = &ok
}

// answer is one task, read from the log: it is there as soon as it is accepted, whatever the views are at.
func (a *API) answer(ctx context.Context, status int, id subject.TaskID) (*taskAnswer, error) {
	_, log, err := a.read(ctx, string(id))
	if err != nil {
		return nil, err
	}
	t, ok := a.cfg.Ledger.Get(id)
	if !ok {
		t = ledger.Task{ID: id, Percent: -1}
	}
	v := t.Describe(log)
	tell(&v, t, a.facts(time.Now()))
	return &taskAnswer{Status: status, Location: "/v1/tasks/" + string(id), Body: v}, nil
}

func (a *API) task(ctx context.Context, in *TaskPath) (*taskAnswer, error) {
	id, err := a.resolve(in.ID)
	if err != nil {
		return nil, err
	}
	return a.answer(ctx, http.StatusOK, id)
}

// resolve finds the task that an id or a prefix of one names.
func (a *API) resolve(prefix string) (subject.TaskID, error) {
	if id, err := message.ParseUUID(prefix); err == nil {
		return subject.TaskID(id), nil
	}
	if loading, _, _ := a.cfg.Ledger.Loading(); loading {
		return "", stillLoading() // another task may begin so too
	}
	found := a.cfg.Ledger.Find(prefix, 6)
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		p := problem(http.StatusConflict, fmt.Sprintf("several tasks begin with %s: give more of the id", prefix))
		for _, id := range found {
			p.Errors = append(p.Errors, Detail{Location: "path.id", Message: string(id)})
		}
		return "", p
	}
	return "", problem(http.StatusNotFound, "no task begins with "+prefix, Detail{Location: "path.id", Message: "is unknown"})
}

func stillLoading() *Problem {
	p := problem(http.StatusServiceUnavailable, "the views are still being folded after a start; a task can be asked for by its whole id")
	p.retryAfter = "1"
	return p
}

type listInput struct {
	State     []string  `query:"state,explode" doc:"One or more of queued, held, running, paused, cancelling, succeeded, failed, cancelled, error" enum:"queued,held,running,paused,cancelling,succeeded,failed,cancelled,error"`
	AgentType string    `query:"agent_type"`
	Agent     string    `query:"agent" doc:"That holds it, held it last, or was asked for"`
	WorkType  string    `query:"work_type"`
	Label     []string  `query:"label,explode" doc:"key=value; all given ones must match"`
	Since     time.Time `query:"since" doc:"Submitted at or after (RFC 3339)"`
	Until     time.Time `query:"until" doc:"Submitted before (RFC 3339)"`
	Limit     int       `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor    string    `query:"cursor" doc:"next_cursor of the answer before"`
}

// TaskList is one page of tasks.
type TaskList struct {
	Tasks      []view.Task `json:"tasks" nullable:"false"`
	NextCursor string      `json:"next_cursor,omitempty" doc:"Ask with it for those behind"`
}

type listAnswer struct{ Body TaskList }

func (a *API) list(_ context.Context, in *listInput) (*listAnswer, error) {
	if loading, _, _ := a.cfg.Ledger.Loading(); loading {
		return nil, stillLoading()
	}
	q := ledger.Query{
		States: in.State, AgentType: in.AgentType, Agent: in.Agent, WorkType: in.WorkType, Labels: map[string]string{},
		Since: in.Since, Until: in.Until, Limit: in.Limit, Cursor: in.Cursor,
	}
	for _, l := range in.Label {
		k, v, ok := strings.Cut(l, "=")
		if !ok {
			return nil, problem(http.StatusUnprocessableEntity, "a label is key=value", Detail{Location: "query.label", Message: "is not key=value"})
		}
		q.Labels[k] = v
	}
	found, next, err := a.cfg.Ledger.List(q)
	if err != nil {
		return nil, problem(http.StatusUnprocessableEntity, err.Error(), Detail{Location: "query.cursor", Message: err.Error()})
	}
	facts := a.facts(time.Now())
	for i := range found {
		if t, ok := a.cfg.Ledger.Get(subject.TaskID(found[i].TaskID)); ok {
			tell(&found[i], t, facts)
		}
	}
	return &listAnswer{Body: TaskList{Tasks: append([]view.Task{}, found...), NextCursor: next}}, nil
}

// A Cancellation says how to stop a task.
type Cancellation struct {
	Reason       string `json:"reason,omitempty" maxLength:"1000"`
	GraceSeconds int    `json:"grace_seconds,omitempty" minimum:"0" maximum:"3600" doc:"Between the signal and the kill; 0 is the work type's own"`
	Signal       string `json:"signal,omitempty" enum:"TERM,INT,HUP,QUIT,USR1,USR2,KILL"`
	Force        bool   `json:"force,omitempty" doc:"End it although nobody knows what its holder does"`
}

type cancelInput struct {
	TaskPath
	Body *Cancellation `required:"false"`
}

func (a *API) cancel(ctx context.Context, in *cancelInput) (*taskAnswer, error) {
	id, err := a.resolve(in.ID)
	if err != nil {
		return nil, err
	}
	want := message.Cancel{By: "admin"}
	if in.Body != nil {
		want.Reason, want.GraceSeconds, want.Signal, want.Force = in.Body.Reason, in.Body.GraceSeconds, in.Body.Signal, in.Body.Force
	}
	before, _ := a.cfg.Ledger.Get(id)
	ended, err := a.cfg.Dispatcher.Cancel(ctx, id, want)
	if err != nil {
		return nil, a.about(problemOf(err), id, "")
	}
	said, err := a.answer(ctx, http.StatusAccepted, id)
	if err != nil {
		return nil, err
	}
	if was := before.CancelAt; ended || said.Body.State == view.Cancelling && !was.IsZero() && said.Body.Cancel.At.Equal(was) {
		said.Status = http.StatusOK
	}
	return said, nil
}
