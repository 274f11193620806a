package intake_test

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

const patience = 30 * time.Second

func (w *world) state(id subject.TaskID) tasklog.State {
	w.Helper()
	log, err := w.Task(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return tasklog.Fold(log)
}

// until reads the task log from its beginning until seen is content; void entries fail the test.
func (w *world) until(what string, seen func(tasklog.Entry, tasklog.State) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	states := map[subject.TaskID]tasklog.State{}
	for m, err := range w.Tail(ctx, subject.TasksStream, 1) {
		if err != nil {
			w.Fatal(err)
		}
		e := m.Entry()
		st, _ := states[e.Subject.Task].Next(e)
		states[e.Subject.Task] = st
		if seen(e, st) {
			return
		}
	}
	w.Fatalf("waited %s for %s", patience, what)
}

// entry waits for an entry of a kind in a task's log.
func (w *world) entry(id subject.TaskID, kind tasklog.Kind) (found tasklog.Entry) {
	w.Helper()
	w.until(string(kind)+" of "+string(id), func(e tasklog.Entry, st tasklog.State) bool {
		if e.Subject.Task != id {
			return false
		}
		if e.Kind != kind && st.Phase == tasklog.PhaseEnded {
			w.Fatalf("task ended with %s %+v, want %s", e.Kind, e.Message.Failure, kind)
		}
		found = e
		return e.Kind == kind
	})
	return found
}

// kinds lists a task's log.
func (w *world) kinds(id subject.TaskID) (list []tasklog.Kind) {
	w.Helper()
	log, err := w.Task(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range log {
		list = append(list, e.Kind)
	}
	return list
}

// statuses lists what an agent has said about a task.
func (w *world) statuses(id subject.TaskID) (list []message.Message[message.WorkStatus]) {
	w.Helper()
	for m, err := range w.Range(w.Context(), subject.StatusStream, "chiffon.task."+string(id)+".status.*", 1) {
		if err != nil {
			w.Fatal(err)
		}
		s, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			w.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// late waits for the status of an outcome that the log did not take.
func (w *world) late(id subject.TaskID) (found message.Message[message.WorkStatus]) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for m, err := range w.Tail(ctx, subject.StatusStream, 1) {
		if err != nil {
			w.Fatal(err)
		}
		s, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			w.Fatal(err)
		}
		if x := s.Custom.Chiffon; s.Payload.TaskID == id && x != nil && x.Late {
			return s
		}
	}
	w.Fatal("no status of a late outcome")
	return found
}

// waiting describes a consumer.
func (w *world) waiting(p subject.Priority) *jetstream.ConsumerInfo {
	w.Helper()
	c, err := w.Consumer(w.Context(), subject.TypeConsumer(agentType, p))
	if err != nil {
		w.Fatal(err)
	}
	return c.CachedInfo()
}

// settled waits until every request of a priority is acknowledged.
func (w *world) settled(p subject.Priority) {
	w.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for {
		if i := w.waiting(p); i.NumAckPending == 0 && i.NumPending == 0 {
			return
		}
		select {
		case <-ctx.Done():
			w.Fatalf("requests of priority %s are not acknowledged: %+v", p, w.waiting(p))
		case <-tick.C:
		}
	}
}

// eventually waits for what nobody announces.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			w.Fatalf("waited %s: %s", patience, what)
		case <-tick.C:
		}
	}
}

// warnings collects what is logged at warn and above.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (v *warnings) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.Write(p)
}

func (v *warnings) lines(with string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for line := range bytes.Lines(v.text.Bytes()) {
		if bytes.Contains(line, []byte(with)) {
			n++
		}
	}
	return n
}
