package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/view"
	"chiffon/pkg/subject"
)

// quiet is how long a stream of events may say nothing before it says that it lives.
const quiet = 15 * time.Second

type eventsInput struct {
	TaskPath
	Follow      bool   `query:"follow" doc:"Go on until the task has ended"`
	LastEventID string `header:"Last-Event-ID" doc:"id of the last event that was read: those behind it are sent"`
}

func (a *API) events() {
	r := a.huma.OpenAPI().Components.Schemas
	op := operation(http.MethodGet, "/v1/tasks/{id}/events", "watch-task", "What happened to a task, and what happens", answers(404, 409, 422, 503),
		described("Server-sent events, from the first: `entry` (of the task's log), `status` (progress and output), `gap` (statuses that have expired), and at last `end` with the task. Each has an id; send the last one read as Last-Event-ID to go on from there."))
	op.Responses = map[string]*huma.Response{"200": {
		Description: "Events",
		Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{
			Type: "array", Description: "Each item is the data of one event", Items: r.Schema(reflect.TypeFor[view.Event](), true, "Event"),
		}}},
	}}
	huma.Register(a.huma, op, a.watch)
}

func (a *API) watch(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	id, err := a.resolve(in.ID)
	if err != nil {
		return nil, err
	}
	from, err := ledger.ParseCursor(in.LastEventID)
	if err != nil {
		return nil, problem(http.StatusUnprocessableEntity, err.Error(), Detail{Location: "header.Last-Event-ID", Message: err.Error()})
	}
	if _, known := a.cfg.Ledger.Get(id); !known {
		if _, err := a.answer(ctx, http.StatusOK, id); err != nil {
			return nil, err // unknown, or the broker is away: said while a status can still say it
		}
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		_, w := humago.Unwrap(hc)
		a.stream(hc.Context(), w, id, from, in.Follow)
	}}, nil
}

// stream writes events until the task has ended, the reader has gone or the server stops.
func (a *API) stream(ctx context.Context, w http.ResponseWriter, id subject.TaskID, from ledger.Cursor, follow bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(w)
	_ = out.Flush() // a reader that has gone is noticed at the first write

	events := make(chan view.Event)
	var broken error
	go func() {
		defer close(events)
		for ev, err := range a.cfg.Ledger.Watch(ctx, id, from, follow) {
			if err != nil {
				broken = err
				return
			}
			select {
			case events <- ev:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range events { // until the goroutine has ended
		}
	}()
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	for {
		var err error
		select {
		case ev, ok := <-events:
			if !ok && broken != nil {
				// Not a clean end, which says that there was no more: the reader comes back with its last id.
				panic(http.ErrAbortHandler)
			}
			if !ok {
				return
			}
			err = send(w, ev)
		case <-alive.C:
			_, err = fmt.Fprint(w, ": alive\n\n")
		case <-a.cfg.Stopping:
			if !follow {
				panic(http.ErrAbortHandler)
			}
			return
		}
		if err == nil && len(events) == 0 {
			err = out.Flush()
		}
		if err != nil {
			return
		}
		alive.Reset(quiet)
	}
}

func send(w http.ResponseWriter, ev view.Event) error {
	data, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	name := "entry"
	switch ev.Kind {
	case "status", "gap", "end":
		name = ev.Kind
	}
	_, err = fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", ev.ID, name, data)
	return err
}
