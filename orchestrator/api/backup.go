package api

import (
	"context"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"chiffon/orchestrator/backup"
)

func (a *API) backups() {
	var one sync.Mutex // at a time: each reads everything there is
	op := operation(http.MethodGet, "/v1/backup", "backup", "Everything the broker holds, as one file", answers(503),
		described("A tar of online snapshots with a manifest at its end; without that it is not whole. A backup that fails on the way breaks the connection. For `orchestrator backup` and `orchestrator restore`."))
	op.Responses = map[string]*huma.Response{"200": {
		Description: "The backup", Content: map[string]*huma.MediaType{"application/x-tar": {Schema: &huma.Schema{Type: "string", Format: "binary"}}},
	}}
	huma.Register(a.huma, op, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
		if !one.TryLock() {
			p := problem(http.StatusServiceUnavailable, "another backup is being made")
			p.retryAfter = "5"
			return nil, p
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			defer one.Unlock()
			_, w := humago.Unwrap(hc)
			a.save(hc.Context(), w)
		}}, nil
	})
}

// save writes a backup until it is whole, the reader has gone or the server stops.
func (a *API) save(ctx context.Context, w http.ResponseWriter) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.cfg.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Cache-Control", "no-store")
	if _, err := backup.Write(ctx, a.cfg.Client, w); err != nil {
		panic(http.ErrAbortHandler) // not a clean end, which would look like a whole file
	}
}
