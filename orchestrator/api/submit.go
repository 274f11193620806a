package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// patience is how long a submission waits for the broker. Who is told that it did not answer sends it again.
const patience = 15 * time.Second

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

type submitInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Stands for a request_id: repeat it and the same task answers"`
	RawBody        []byte `contentType:"application/json"`
}

// submission is an operation whose body is judged here: it is one of two.
func (a *API) submission() huma.Operation {
	op := operation(http.MethodPost, "/v1/tasks", "submit-task", "Submit work", answers(400, 413, 415, 422, 429, 503),
		described("The body is a NewTask or a whole work_request envelope of the protocol. 202: accepted, it can be read at once. 200: this request_id was accepted before, here is its task. 422: it was, with other content; or a field is wrong. 429: as many tasks wait as may, for agents of the type or of the submitter."))
	op.DefaultStatus = http.StatusAccepted
	op.SkipValidateBody = true
	return op
}

// eitherBody is what the document says of that body: a NewTask, or a whole work_request envelope.
func (a *API) eitherBody() *huma.RequestBody {
	r := a.huma.OpenAPI().Components.Schemas
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{
		AnyOf: []*huma.Schema{r.Schema(reflect.TypeFor[NewTask](), true, "NewTask"), {
			Type: "object", Description: "A work_request envelope of the protocol (docs/protocol.md)", AdditionalProperties: true,
			Required:   []string{"protocol_version", "message_id", "from_agent", "to_agent", "timestamp", "trace_id", "request_id", "type", "payload"},
			Properties: map[string]*huma.Schema{"type": {Type: "string", Enum: []any{"work_request"}}},
		}},
	}}}}
}

func (a *API) submit(ctx context.Context, in *submitInput) (*taskAnswer, error) {
	o, whole, err := a.order(in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id, created, err := a.cfg.Dispatcher.Submit(ctx, o)
	switch {
	case err != nil && whole:
		return nil, a.about(problemOf(err), id, o.Request.TraceID)
	case errors.Is(err, dispatch.ErrConflict):
		return nil, a.about(problemOf(err), id, "")
	case err != nil:
		return nil, flat(problemOf(err))
	}
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
	}
	return a.answer(ctx, status, id)
}

// order reads either body; whole says that it was an envelope.
func (a *API) order(in *submitInput) (o dispatch.Order, whole bool, err error) {
	o.By = "admin" // the one credential there is
	var probe map[string]json.RawMessage
	if err := json.Unmarshal(in.RawBody, &probe); err != nil {
		text := "is no JSON: " + err.Error()
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			text = "expected object"
		}
		return o, false, newProblem(http.StatusUnprocessableEntity, "the body is no JSON object", &huma.ErrorDetail{Location: "body", Message: text})
	}
	for _, field := range []string{"payload", "message_id", "protocol_version"} {
		if _, ok := probe[field]; ok {
			whole = true
		}
	}
	if whole {
		if o.Request, err = message.Decode[message.WorkRequest](in.RawBody); err != nil {
			return o, true, problemOf(err)
		}
		return o, true, sameRequest(in.IdempotencyKey, o)
	}
	var n NewTask
	if err := a.newTask(in.RawBody, &n); err != nil {
		return o, false, err
	}
	request := message.NewUUID()
	switch {
	case n.RequestID != "":
		if request, err = message.ParseUUID(n.RequestID); err != nil {
			return o, false, newProblem(http.StatusUnprocessableEntity, "request_id is no UUID", &huma.ErrorDetail{Location: "body.request_id", Message: err.Error()})
		}
	case in.IdempotencyKey != "":
		request = tasklog.RequestID(o.By, in.IdempotencyKey)
	}
	o.Request = message.New(subject.Orchestrator, subject.AgentType(n.AgentType), message.NewUUID(), request, message.WorkRequest{
		WorkType: n.WorkType, Parameters: probe["parameters"], Hints: hints(n.Hints), // as they were sent: large numbers stay whole
	})
	o.Request.Custom.Chiffon = &message.Extension{
		Name: n.Name, Description: n.Description, Priority: n.Priority, Agent: n.Agent, On: n.On, Needs: n.Needs, Labels: n.Labels,
	}
	o.QueueTimeout = time.Duration(n.QueueTimeoutSeconds) * time.Second
	return o, false, sameRequest(in.IdempotencyKey, o)
}

// sameRequest refuses a request with two identities: a repetition could come with either, and would be another task.
func sameRequest(key string, o dispatch.Order) error {
	if key == "" || o.Request.RequestID == tasklog.RequestID(o.By, key) {
		return nil
	}
	const text = "stands for a request_id of its own: send one of the two"
	return newProblem(http.StatusUnprocessableEntity, "Idempotency-Key "+text, &huma.ErrorDetail{Location: "header.Idempotency-Key", Message: text})
}

// newTask holds a body against the schema that the document shows, and reads it.
func (a *API) newTask(body []byte, n *NewTask) error {
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return newProblem(http.StatusUnprocessableEntity, "the body is no JSON", &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	r := a.huma.OpenAPI().Components.Schemas
	path, res := huma.NewPathBuffer([]byte{}, 0), huma.ValidateResult{}
	path.Push("body")
	huma.Validate(r, r.Schema(reflect.TypeFor[NewTask](), true, "NewTask"), path, huma.ModeWriteToServer, v, &res)
	if len(res.Errors) > 0 {
		return newProblem(http.StatusUnprocessableEntity, "the task is not accepted: a field is wrong", res.Errors...)
	}
	if err := json.Unmarshal(body, n); err != nil {
		return newProblem(http.StatusUnprocessableEntity, "the body is not read", &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	return nil
}

func hints(h *view.Hints) *message.Hints {
	if h == nil || *h == (view.Hints{}) {
		return nil
	}
	return &message.Hints{MaxDurationSeconds: h.MaxDurationSeconds, MaxMemoryMB: h.MaxMemoryMB, GPUVRAMMB: h.GPUVRAMMB}
}
