package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A NewTask is what somebody wants done.
type NewTask struct {
	AgentType           string            `json:"agent_type" minLength:"1" maxLength:"63" doc:"infra, desktop, code, research or another type of agents"`
	WorkType            string            `json:"work_type" minLength:"1" maxLength:"128"`
	Parameters          map[string]any    `json:"parameters" nullable:"false" doc:"What the work type takes; may be {}"`
	Hints               *view.Hints       `json:"hints,omitempty"`
	Priority            string            `json:"priority,omitempty" enum:"critical,high,normal,medium,low" doc:"medium is read as normal"`
	Agent               string            `json:"agent,omitempty" doc:"The only agent that may do it"`
	On                  map[string]string `json:"on,omitempty" doc:"Labels that the agent must have"`
	Needs               []string          `json:"needs,omitempty" maxItems:"64" nullable:"false" doc:"Capabilities that the agent must claim"`
	Labels              map[string]string `json:"labels,omitempty" doc:"To find the task by"`
	Name                string            `json:"name,omitempty" maxLength:"200"`
	Description         string            `json:"description,omitempty" maxLength:"4000"`
	RequestID           string            `json:"request_id,omitempty" format:"uuid" doc:"Repeat it and the same task answers"`
	QueueTimeoutSeconds int               `json:"queue_timeout_seconds,omitempty" minimum:"0" maximum:"31536000" doc:"Ends the task if it has not started by then; 0 is never"`
}

type taskAnswer struct {
	Status   int
	Location string `header:"Location" doc:"Where the task is"`
	Body     view.Task
}

// A TaskPath names one task. Exported, since it is embedded: huma fills no field of an embedded type that is not.
type TaskPath struct {
	ID string `path:"id" minLength:"1" maxLength:"36" doc:"The task's id, or any prefix of it that no other task has"`
}

func (a *API) tasks() {
	huma.Register(a.huma, a.submission(), a.submit)
	huma.Register(a.huma, operation(http.MethodGet, "/v1/tasks", "list-tasks", "List tasks, newest first", answers(422, 503)), a.list)
	huma.Register(a.huma, operation(http.MethodGet, "/v1/tasks/{id}", "get-task", "One task as it is now", answers(404, 409, 503)), a.task)
	huma.Register(a.huma, operation(http.MethodPost, "/v1/tasks/{id}/cancel", "cancel-task", "Stop a task", answers(404, 409, 422, 503),
		described("Work that has not begun never begins. Work that runs is stopped by its runner; only then is the task cancelled. 202 while it is being stopped, 200 when it had ended before."),
		func(op *huma.Operation) { op.DefaultStatus = http.StatusAccepted }), a.cancel)
}

type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Stands for a request_id: repeat it and the same task answers"`
	RawBody        []byte `contentType:"application/json"`
}

// submission is the operation whose body is one of two: a NewTask, or a whole work_request envelope.
func (a *API) submission() huma.Operation {
	r := a.huma.OpenAPI().Components.Schemas
	op := operation(http.MethodPost, "/v1/tasks", "submit-task", "Submit work", answers(401, 409, 422, 503),
		described("The body is a NewTask or a whole work_request envelope of the protocol. 202: accepted, it can be read at once. 200: this request_id was accepted before, here is its task. 422: it was, with other content; or a field is wrong."))
	op.DefaultStatus = http.StatusAccepted
	op.SkipValidateBody = true
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{
		AnyOf: []*huma.Schema{r.Schema(reflect.TypeFor[NewTask](), true, "NewTask"), {
			Type: "object", Description: "A work_request envelope of the protocol (docs/protocol.md)", AdditionalProperties: true,
			Required:   []string{"protocol_version", "message_id", "from_agent", "to_agent", "timestamp", "trace_id", "request_id", "type", "payload"},
			Properties: map[string]*huma.Schema{"type": {Type: "string", Enum: []any{"work_request"}}},
		}},
	}}}}
	return op
}

func (a *API) submit(ctx context.Context, in *submitInput) (*taskAnswer, error) {
	o, err := a.order(in)
	if err != nil {
		return nil, err
	}
	id, created, err := a.cfg.Dispatcher.Submit(ctx, o)
	if err != nil {
		return nil, problemOf(err)
	}
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
	}
	return a.answer(ctx, status, id)
}

// order reads either body.
func (a *API) order(in *submitInput) (dispatch.Order, error) {
	by := "admin" // the one credential there is
	var probe map[string]json.RawMessage
	if err := json.Unmarshal(in.RawBody, &probe); err != nil {
		return dispatch.Order{}, newProblem(http.StatusUnprocessableEntity, "the body is no JSON object: "+err.Error(), &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	_, envelope := probe["payload"]
	if _, ok := probe["message_id"]; ok || envelope {
		m, err := message.Decode[message.WorkRequest](in.RawBody)
		if err != nil {
			return dispatch.Order{}, envelopeProblem(err)
		}
		return dispatch.Order{Request: m, By: by}, nil
	}
	n, err := a.newTask(in.RawBody)
	if err != nil {
		return dispatch.Order{}, err
	}
	request := message.NewUUID()
	switch {
	case n.RequestID != "":
		request, _ = message.ParseUUID(n.RequestID) // the schema has judged it
	case in.IdempotencyKey != "":
		request = tasklog.RequestID(by, in.IdempotencyKey)
	}
	parameters, err := json.Marshal(n.Parameters)
	if err != nil {
		return dispatch.Order{}, problemOf(err)
	}
	m := message.New(subject.Orchestrator, subject.AgentType(n.AgentType), message.NewUUID(), request, message.WorkRequest{
		WorkType: n.WorkType, Parameters: parameters, Hints: hints(n.Hints),
	})
	m.Custom.Chiffon = &message.Extension{
		Name: n.Name, Description: n.Description, Priority: n.Priority, Agent: n.Agent, On: n.On, Needs: n.Needs, Labels: n.Labels,
	}
	return dispatch.Order{Request: m, By: by, QueueTimeout: time.Duration(n.QueueTimeoutSeconds) * time.Second}, nil
}

func envelopeProblem(err error) error {
	p := problemOf(err).(*Problem)
	for i, d := range p.Errors {
		p.Errors[i].Location = d.Location
	}
	return p
}

// newTask holds a body against the schema that the document shows, and reads it.
func (a *API) newTask(body []byte) (n NewTask, err error) {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return n, newProblem(http.StatusUnprocessableEntity, "the body is no JSON", &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	r := a.huma.OpenAPI().Components.Schemas
	path, res := huma.NewPathBuffer([]byte{}, 0), huma.ValidateResult{}
	path.Push("body")
	huma.Validate(r, r.Schema(reflect.TypeFor[NewTask](), true, "NewTask"), path, huma.ModeWriteToServer, v, &res)
	if len(res.Errors) > 0 {
		return n, newProblem(http.StatusUnprocessableEntity, "the task is not accepted: a field is wrong", res.Errors...)
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, newProblem(http.StatusUnprocessableEntity, "the body is not read", &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	return n, nil
}

func hints(h *view.Hints) *message.Hints {
	if h == nil || *h == (view.Hints{}) {
		return nil
	}
	return &message.Hints{MaxDurationSeconds: h.MaxDurationSeconds, MaxMemoryMB: h.MaxMemoryMB, GPUVRAMMB: h.GPUVRAMMB}
}

// answer is one task, read from the log: it is there as soon as it is accepted, whatever the views are at.
func (a *API) answer(ctx context.Context, status int, id subject.TaskID) (*taskAnswer, error) {
	log, err := a.cfg.Client.Task(ctx, id)
	if err != nil {
		return nil, problemOf(err)
	}
	if len(log) == 0 {
		return nil, problemOf(dispatch.ErrUnknown)
	}
	t, ok := a.cfg.Ledger.Get(id)
	if !ok {
		t = ledger.Task{ID: id, Percent: -1}
	}
	v := t.Describe(log)
	v.WaitingFor = a.cfg.Dispatcher.WaitingFor(t, time.Now())
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
	if strings.Trim(strings.ToLower(prefix), "0123456789abcdef-") != "" {
		return "", problem(http.StatusNotFound, "a task's id is a UUID, or the beginning of one", Detail{Location: "path.id", Message: "is no UUID"})
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
	if loading, _, _ := a.cfg.Ledger.Loading(); loading {
		return "", stillLoading()
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
	now := time.Now()
	for i := range found {
		if t, ok := a.cfg.Ledger.Get(subject.TaskID(found[i].TaskID)); ok {
			found[i].WaitingFor = a.cfg.Dispatcher.WaitingFor(t, now)
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
	ended, err := a.cfg.Dispatcher.Cancel(ctx, id, want)
	if err != nil {
		return nil, problemOf(err)
	}
	status := http.StatusAccepted
	if ended {
		status = http.StatusOK
	}
	return a.answer(ctx, status, id)
}
