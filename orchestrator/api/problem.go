package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/dispatch"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/token"
)

// A Problem is what was wrong with a request (RFC 9457).
type Problem struct {
	Type         string         `json:"type" doc:"URI of the kind of problem; about:blank when the status says all"`
	Title        string         `json:"title"`
	Status       int            `json:"status"`
	Detail       string         `json:"detail,omitempty" doc:"What happened, to what, what to try"`
	Instance     string         `json:"instance,omitempty" doc:"The path that was asked for"`
	ErrorCode    int            `json:"error_code,omitempty" doc:"The protocol's code, 5001–5999, where it has one"`
	ErrorContext map[string]any `json:"error_context,omitempty" doc:"What the protocol says with that code, e.g. supported_types"`
	TraceID      string         `json:"trace_id,omitempty" doc:"Of the task that it is about"`
	TaskID       string         `json:"task_id,omitempty" doc:"The task that it is about"`
	Errors       []Detail       `json:"errors,omitempty" nullable:"false"`

	retryAfter string
	underway   bool // the broker was asked, and has not answered
}

// A Detail names one field and what is wrong with it.
type Detail struct {
	Location string `json:"location" doc:"Where, e.g. body.agent_type, query.limit, header.Idempotency-Key; of a whole envelope body. and the field's path in it, e.g. body.payload.hints.max_duration_seconds"`
	Message  string `json:"message"`
}

func (p *Problem) Error() string { return cmp.Or(p.Detail, p.Title) }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is what huma writes it as.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders adds when to try again.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter != "" {
		h.Set("Retry-After", p.retryAfter)
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="chiffon"`)
	}
	return h
}

func problem(status int, detail string, details ...Detail) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, Errors: details}
}

// huma has no other place for it; every API of this process wants the same.
func init() { huma.NewError = newProblem }

// newProblem makes problems of huma's own findings. They never repeat a value: it may be a secret.
func newProblem(status int, msg string, errs ...error) huma.StatusError {
	p := problem(status, msg)
	if status == http.StatusRequestEntityTooLarge {
		p.Detail = fmt.Sprintf("the body is larger than the %d MiB allowed: send smaller parameters, such as the name of a file on the agent's host", maxBody>>20)
	}
	for _, err := range errs {
		if err == nil {
			continue
		}
		d := Detail{Message: err.Error()}
		if found, ok := err.(huma.ErrorDetailer); ok {
			d = Detail{Location: found.ErrorDetail().Location, Message: found.ErrorDetail().Message}
		}
		p.Errors = append(p.Errors, missing(d))
	}
	if status == http.StatusBadRequest && len(p.Errors) == 0 {
		p.Errors = []Detail{{Location: "body", Message: msg}} // the only thing huma finds so
	}
	if status == http.StatusUnprocessableEntity || status == http.StatusBadRequest {
		p.ErrorCode = int(fault.InvalidMessage)
	}
	return p
}

// missing names the field itself where huma names the object that lacks it, and says in people's words what a time is.
func missing(d Detail) Detail {
	const before, after = "expected required property ", " to be present"
	if name, ok := strings.CutPrefix(d.Message, before); ok {
		if name, ok = strings.CutSuffix(name, after); ok {
			return Detail{Location: d.Location + "." + name, Message: "is missing"}
		}
	}
	if strings.HasPrefix(d.Message, "invalid date/time") {
		d.Message = "expected a time in RFC 3339, such as 2026-01-31T12:00:00Z"
	}
	return d
}

// problemOf makes a problem of what went wrong inside.
func problemOf(err error) error {
	if flt, ok := errors.AsType[*fault.Fault](err); ok {
		return faultProblem(flt)
	}
	if crowded, ok := errors.AsType[*dispatch.Crowded](err); ok {
		p := faultProblem(crowded.Fault)
		p.Status, p.retryAfter = http.StatusTooManyRequests, "10"
		return p
	}
	switch {
	case errors.Is(err, dispatch.ErrConflict):
		return problem(http.StatusUnprocessableEntity, "another request with this id was accepted before, with other content: use a new request_id (or Idempotency-Key), or repeat the first content", Detail{Location: "body.request_id", Message: "already stands for other content"})
	case errors.Is(err, dispatch.ErrUnknown):
		return problem(http.StatusNotFound, "there is no such task (ended ones are removed some time after their end)")
	case errors.Is(err, dispatch.ErrFull):
		p := problem(http.StatusServiceUnavailable, "the task log is nearly full: nothing new is accepted until old tasks are removed or ORCHESTRATOR_KEEP_TASKS is shorter; what runs goes on")
		p.retryAfter = "60"
		return p
	case errors.Is(err, dispatch.ErrNoRoom):
		p := problem(http.StatusServiceUnavailable, err.Error()+": nothing new is accepted until there is room again; what runs goes on")
		p.retryAfter = "30"
		return p
	case errors.Is(err, context.Canceled):
		return err
	}
	p := problem(http.StatusServiceUnavailable, "the broker did not answer: "+err.Error())
	p.retryAfter, p.underway = "1", true
	return p.unavailable(time.Time{})
}

// unsure says of a call that was let go under way what holds of it, and sets maybe_done in the context if it may have
// been carried out.
func (p *Problem) unsure(op *huma.Operation) {
	if !p.underway {
		return
	}
	p.underway = false
	if op.Method == http.MethodGet {
		p.Detail += "; nothing was to be changed: ask again"
		return
	}
	p.ErrorContext["maybe_done"] = true
	switch op.OperationID {
	case "submit-task":
		p.Detail += "; whether the task was recorded is not known: sent again with the same request_id or Idempotency-Key it is one task, without either it may be a second"
	case "retry-task":
		p.Detail += "; whether the new task was recorded is not known: asked for again, with the same Idempotency-Key if it had one, it is one task"
	case "cancel-task":
		p.Detail += "; whether the cancel was recorded is not known: to repeat it is harmless"
	default:
		p.Detail += "; whether this was done is not known: to repeat it is safe"
	}
}

// unavailable gives a problem the code of a broker that does not answer; heard is when it did, zero when nobody knows.
func (p *Problem) unavailable(heard time.Time) *Problem {
	p.ErrorCode = int(fault.AgentUnavailable)
	p.ErrorContext = map[string]any{"agent_id": subject.Orchestrator, "last_heartbeat": nil}
	if !heard.IsZero() {
		p.ErrorContext["last_heartbeat"] = heard.UTC().Format(time.RFC3339)
	}
	return p
}

// faultProblem names the field as the protocol does: body. and its path in the envelope.
func faultProblem(flt *fault.Fault) *Problem {
	p := problem(http.StatusUnprocessableEntity, flt.Message)
	p.ErrorCode, p.ErrorContext = int(flt.Code), flt.Context
	p.Type = fmt.Sprintf("urn:chiffon:error:%d", flt.Code)
	p.Title = flt.Code.Name()
	field := flt.Field()
	if flt.Code == fault.UnsupportedWorkType {
		field = "payload.work_type"
		if _, version := flt.Context["supported_versions"]; version {
			field = "protocol_version"
		}
	}
	if field != "" {
		p.Errors = []Detail{{Location: "body." + field, Message: flt.Message}}
	}
	return p
}

// flat names fields as a NewTask has them, which is an envelope made flat.
func flat(err error) error {
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		return err
	}
	for i, d := range p.Errors {
		path := strings.TrimPrefix(d.Location, "body.")
		path = strings.TrimPrefix(strings.TrimPrefix(path, "payload."), "x_custom_fields.chiffon.")
		if path == "to_agent" {
			path = "agent_type"
		}
		p.Errors[i].Location = "body." + path
	}
	return p
}

// about says which task a problem is about, once that is known.
func (a *API) about(err error, id subject.TaskID, trace message.UUID) error {
	if p, ok := errors.AsType[*Problem](err); ok && id != "" {
		if t, ok := a.cfg.Ledger.Get(id); ok {
			trace = t.TraceID
		}
		p.TaskID, p.TraceID = string(id), string(trace)
	}
	return err
}

// instance says in each problem which path was asked for.
func instance(ctx huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*Problem); ok {
		u := ctx.URL()
		p.Instance = u.Path
		p.unsure(ctx.Operation())
	}
	return v, nil
}

// guard lets nobody in without the token, but for what says nothing secret.
func (a *API) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/openapi.json":
			next.ServeHTTP(w, r)
			return
		}
		given, err := token.FromHeader(r.Header.Get("Authorization"))
		if err != nil || !given.Matches(a.cfg.TokenHash) {
			p := problem(http.StatusUnauthorized, "this needs the bearer token that the orchestrator made at its first start (admin.json in its state directory)")
			p.ErrorCode = int(fault.AuthenticationFailed)
			p.ErrorContext = map[string]any{"agent_id": "", "token_status": "missing"}
			if r.Header.Get("Authorization") != "" {
				p.ErrorContext["token_status"] = "refused"
			}
			write(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// typed refuses a body that does not say it is JSON. One that says nothing is taken for it.
func typed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Get("Content-Type")
		kind, _, err := mime.ParseMediaType(given)
		if r.ContentLength != 0 && given != "" && (err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json")) {
			write(w, r, problem(http.StatusUnsupportedMediaType, "the body must be JSON: send Content-Type: application/json",
				Detail{Location: "header.Content-Type", Message: "is not application/json"}))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// routed answers with a problem where the mux has nothing for a path or a method.
func routed(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		rec := &silent{header: http.Header{}, status: http.StatusNotFound}
		mux.ServeHTTP(rec, r)
		p := problem(rec.status, "nothing is served at "+r.Method+" "+r.URL.Path+": /openapi.json says what is")
		if allow := rec.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
		}
		write(w, r, p)
	})
}

// silent takes the mux's own plain text answer, for its status.
type silent struct {
	header http.Header
	status int
}

func (s *silent) Header() http.Header         { return s.header }
func (s *silent) Write(p []byte) (int, error) { return len(p), nil }
func (s *silent) WriteHeader(status int)      { s.status = status }

func write(w http.ResponseWriter, r *http.Request, p *Problem) {
	p.Instance = r.URL.Path
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the reader has gone
}
