package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"chiffon/orchestrator/view"
)

// Patience is how long Events tries to get a lost stream back.
const Patience = 2 * time.Minute

// An Event is a view.Event that keeps the JSON it came as.
type Event struct {
	view.Event
	JSON json.RawMessage
}

// UnmarshalJSON decodes the view and keeps the text.
func (e *Event) UnmarshalJSON(data []byte) error {
	e.JSON = bytes.Clone(data)
	return json.Unmarshal(data, &e.Event)
}

// MarshalJSON is the text as it came, or the view's when there is none.
func (e Event) MarshalJSON() ([]byte, error) {
	if e.JSON != nil {
		return e.JSON, nil
	}
	return json.Marshal(e.Event)
}

// Ended returns the task as it ended if e is the end mark.
func (e Event) Ended() (Task, bool) {
	var end struct{ Task *Task }
	if e.Task == nil {
		return Task{}, false
	}
	if json.Unmarshal(e.JSON, &end) != nil || end.Task == nil {
		return Task{Task: *e.Task}, true
	}
	return *end.Task, true
}

// An EventQuery says which events of a task are wanted.
type EventQuery struct {
	// After is the id of the last event that the caller has seen; empty begins at the first.
	After string

	// Follow goes on until the task has ended; otherwise Events ends with what there is now.
	Follow bool

	// Lost, if set, is told of a stream that broke and how long Events waits before it tries again.
	Lost func(err error, wait time.Duration)
}

// Events reads the story of a task (id or unique prefix) from the first entry, in order. A stream that breaks is taken up
// where it stood; a message that comes twice is shown once. Following ends after the end mark; the last pair has an error if it
// could not: a *Problem (404: no such task; 503 for Patience, at once when it does not follow), an *Unreachable when the
// first connection fails or a lost one does not come back for Patience, or the context's.
func (c *Client) Events(ctx context.Context, id string, q EventQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := &stream{client: c, query: q, id: id, last: q.After, yield: yield}
		if err := s.run(ctx); err != nil {
			yield(Event{}, err)
		}
	}
}

// stream is one reading of events over as many connections as it takes.
type stream struct {
	client *Client
	query  EventQuery
	id     string
	yield  func(Event, error) bool

	last  string // id of the last event shown
	seen  recent
	open  bool // a connection has been made once
	alive bool // something came over the present connection
	done  bool // nothing is to be shown any more
}

// run connects again and again; nil means done, with the end shown or the reader gone.
func (s *stream) run(ctx context.Context) error {
	wait, since := s.client.firstWait, time.Time{}
	for {
		s.alive = false
		err := s.connection(ctx)
		switch {
		case s.done:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !passing(err), !s.open && !s.promised(err):
			return err
		}
		if s.alive {
			wait, since = s.client.firstWait, time.Time{}
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > Patience {
			return err
		}
		pause := wait
		if p, ok := errors.AsType[*Problem](err); ok && p.RetryAfter > 0 {
			pause = min(wait, p.RetryAfter) // it knows better
		}
		if s.query.Lost != nil {
			s.query.Lost(err, pause)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		wait = min(2*wait, s.client.maxWait)
	}
}

// passing says whether a lost stream may come back.
func passing(err error) bool {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p.Status >= 500 || p.Status == http.StatusTooManyRequests
	}
	_, ok := errors.AsType[*Unreachable](err)
	return ok
}

// promised says whether a server that has sent nothing yet is worth waiting for: it answered, that it cannot just now,
// and whoever follows a task wants its end.
func (s *stream) promised(err error) bool {
	_, answered := errors.AsType[*Problem](err)
	return answered && s.query.Follow
}

// connection shows what one connection brings, until it breaks or the stream is done.
func (s *stream) connection(ctx context.Context) error {
	conn, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := s.connect(conn)
	if err != nil {
		return err
	}
	defer body.Close()
	s.open = true
	watchdog := time.AfterFunc(s.client.idle, cancel)
	defer watchdog.Stop()
	frames := newSSE(body)
	for {
		f, err := frames.next(func() { s.alive = true; watchdog.Reset(s.client.idle) })
		switch {
		case err == io.EOF && !s.query.Follow:
			s.done = true
			return nil
		case errors.Is(err, bufio.ErrTooLong):
			return fmt.Errorf("an event of task %s is larger than %d MiB", s.id, maxEvent>>20)
		case err != nil && conn.Err() != nil && ctx.Err() == nil:
			return &Unreachable{URL: s.client.URL(), Err: fmt.Errorf("no sign of life for %v", s.client.idle)}
		case err != nil:
			return s.client.broken(ctx, err)
		}
		watchdog.Stop() // the reader may take its time
		if err := s.show(f); err != nil || s.done {
			return err
		}
		watchdog.Reset(s.client.idle)
	}
}

// connect opens the stream. The first time a server that is still loading is waited for; later run does that.
func (s *stream) connect(ctx context.Context) (io.ReadCloser, error) {
	path, err := named("tasks", s.id)
	if err != nil {
		return nil, err
	}
	k := call{
		method: http.MethodGet,
		path:   path + "/events",
		query:  url.Values{"follow": {fmt.Sprint(s.query.Follow)}},
		header: http.Header{"Accept": {"text/event-stream"}},
	}
	if s.last != "" {
		k.header.Set("Last-Event-ID", s.last)
	}
	wait := s.client.firstWait
	for try := 0; ; try++ {
		res, err := s.client.send(ctx, k, nil)
		if err == nil {
			return res.Body, nil
		}
		pause, again := s.client.again(err, wait)
		if s.open || !again || try >= s.client.retries {
			return nil, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
		wait = min(2*wait, s.client.maxWait)
	}
}

func (s *stream) show(f frame) error {
	var e Event
	if err := json.Unmarshal(f.data, &e); err != nil {
		return fmt.Errorf("%s sends events of task %s that can't be read: %w", s.client.URL(), s.id, err)
	}
	if f.id != "" {
		s.last = f.id
	}
	if e.Kind == "status" && s.seen.before(e.Message) {
		return nil
	}
	_, ended := e.Ended()
	s.done = !s.yield(e, nil) || ended
	return nil
}

// recent remembers the latest message ids: a message published twice comes twice in short order.
type recent struct {
	ids  map[string]bool
	ring []string
	next int
}

const remembered = 8192

// before reports whether a message with this message_id was seen lately.
func (r *recent) before(raw json.RawMessage) bool {
	var m struct {
		MessageID string `json:"message_id"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &m) != nil || m.MessageID == "" {
		return false
	}
	if r.ids[m.MessageID] {
		return true
	}
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	r.ids[m.MessageID] = true
	if len(r.ring) < remembered {
		r.ring = append(r.ring, m.MessageID)
		return false
	}
	delete(r.ids, r.ring[r.next])
	r.ring[r.next] = m.MessageID
	r.next = (r.next + 1) % remembered
	return false
}
