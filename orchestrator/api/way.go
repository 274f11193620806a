package api

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"chiffon/orchestrator/breaker"
	"chiffon/pkg/fault"
)

// fromMemory are the operations that are answered without the broker. While it is out of reach they go on, and say in
// a header that what they know may be old.
var fromMemory = []string{
	"healthz", "readyz", "check", "list-tasks", "list-agents", "get-agent", "why-agent", "list-breakers",
}

// streams write until their reader has gone: losing the broker does not end them.
var streams = []string{"watch-task", "backup"}

// along refuses at once what needs the broker while that cannot be asked, and lets go of who waits for it when that
// becomes known.
func (a *API) along(ctx huma.Context, next func(huma.Context)) {
	if a.cfg.Way == nil {
		next(ctx)
		return
	}
	id := ctx.Operation().OperationID
	err := a.cfg.Way.Check()
	switch {
	case err == nil && (slices.Contains(fromMemory, id) || slices.Contains(streams, id)):
		next(ctx)
	case err == nil:
		inner, stop := a.cfg.Way.Along(ctx.Context())
		defer stop()
		next(huma.WithContext(ctx, inner))
	case slices.Contains(fromMemory, id):
		ctx.SetHeader("Warning", fmt.Sprintf("110 chiffon %q", err.Error()+"; this may be old"))
		next(ctx)
	default:
		a.refuse(ctx, err)
	}
}

// refuse answers that the broker cannot be asked, before anything was.
func (a *API) refuse(ctx huma.Context, cause error) {
	p := problem(http.StatusServiceUnavailable, cause.Error()+"; nothing was done by this call: try again when it is back, what runs goes on")
	var heard time.Time
	p.retryAfter = "1"
	if out, ok := cause.(*breaker.OutError); ok {
		p.retryAfter, heard = strconv.Itoa(out.RetryAfter()), time.Now().Add(-out.Since)
	}
	p.unavailable(heard)
	p.Instance, p.Title = ctx.URL().Path, fault.AgentUnavailable.Name()
	for name, values := range p.GetHeaders() {
		ctx.SetHeader(name, values[0])
	}
	ctx.SetHeader("Content-Type", p.ContentType(""))
	ctx.SetStatus(p.Status)
	_ = a.huma.Marshal(ctx.BodyWriter(), "application/json", p) // the reader has gone
}

// unready says why the server cannot be asked everything; "" when it can.
func (a *API) unready(now time.Time) (status, why string) {
	select {
	case <-a.cfg.Stopping:
		return "stopping", "the orchestrator is about to stop"
	default:
	}
	if a.cfg.Way != nil {
		if err := a.cfg.Way.Check(); err != nil {
			return "unavailable", err.Error()
		}
	}
	if !a.cfg.Client.Connected() {
		return "unavailable", "the broker is out of reach"
	}
	if loading, done, of := a.cfg.Ledger.Loading(); loading {
		return "loading", fmt.Sprintf("folded %d of %d entries", done, of)
	}
	if n, since := a.cfg.Ledger.Behind(); n > 0 {
		return "unavailable", fmt.Sprintf("views are %d entries behind, for %s", n, since.Round(time.Second))
	}
	if !a.cfg.Dispatcher.LeaderKnown(now) {
		return "unavailable", "no orchestrator leads: what delivery cannot do is left undone until one does, within seconds as a rule"
	}
	if a.cfg.ReadOnly != nil {
		if err := a.cfg.ReadOnly(); err != nil {
			return "unavailable", "nothing new is accepted: " + err.Error()
		}
	}
	return "", ""
}
