package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/dispatch"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

type retryInput struct {
	TaskPath
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Another key is another retry; without one a task has one retry, however often it is asked for"`
}

func (a *API) retries() {
	huma.Register(a.huma, operation(http.MethodPost, "/v1/tasks/{id}/retry", "retry-task", "Start an ended task anew", answers(404, 409, 422, 503),
		described("Makes a new task of the same request that names the old one in retry_of. 202: accepted. 200: this retry was accepted before, here is its task. 409: the task has not ended."),
		func(op *huma.Operation) { op.DefaultStatus = http.StatusAccepted }), a.retry)
	also200(a.huma.OpenAPI().Paths["/v1/tasks/{id}/retry"].Post, "It was accepted before: here is its task")
}

func (a *API) retry(ctx context.Context, in *retryInput) (*taskAnswer, error) {
	id, log, err := a.read(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	o, p := again(id, log, in.IdempotencyKey)
	if p != nil {
		return nil, a.about(p, id, "")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fresh, created, err := a.cfg.Dispatcher.Submit(ctx, o)
	switch {
	case errors.Is(err, dispatch.ErrConflict):
		return nil, a.about(problemOf(err), fresh, "")
	case err != nil:
		return nil, a.about(flat(problemOf(err)), id, "")
	}
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
	}
	return a.answer(ctx, status, fresh)
}

// again makes an order of an ended task: the same request, with an identity of its own. Without a key that is derived
// from the task and its end, so that the same retry twice is one task.
func again(id subject.TaskID, log []tasklog.Entry, key string) (dispatch.Order, *Problem) {
	o := dispatch.Order{By: "admin"}
	var s tasklog.State
	var first, end tasklog.Entry
	for _, e := range log {
		next, void := s.Next(e)
		if void == nil && first.Seq == 0 && e.Message.Request != nil {
			first = e
		}
		if next.Phase == tasklog.PhaseEnded && s.Phase != tasklog.PhaseEnded {
			end = e
		}
		s = next
	}
	switch {
	case s.Phase != tasklog.PhaseEnded:
		return o, problem(http.StatusConflict, "task "+string(id)+" has not ended, it is "+s.Phase.String()+": only what has ended is started anew; cancel it first, or let it end")
	case first.Seq == 0:
		return o, problem(http.StatusUnprocessableEntity, "task "+string(id)+" has no request that could be put again: submit it anew")
	}
	if key == "" {
		key = "retry of " + string(id) + " after " + end.ID
	}
	r := *first.Message.Request
	r.TaskID = ""
	o.Request = message.New(subject.Orchestrator, first.Message.ToAgent, message.NewUUID(), tasklog.RequestID(o.By, key), r)
	x := message.Extension{}
	if had := first.Message.Custom.Chiffon; had != nil {
		x = *had
	}
	if x.Expires != nil {
		o.QueueTimeout = max(time.Second, x.Expires.Sub(first.Time).Round(time.Second))
		x.Expires = nil
	}
	x.RetryOf = string(id)
	o.Request.Custom = first.Message.Custom
	o.Request.Custom.Chiffon = &x
	return o, nil
}
