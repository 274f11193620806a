// Package ledger is what has happened: the streams folded into views, and the only writer of views. It knows nothing
// of its readers, who watch it, and decides nothing.
package ledger

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A Ledger holds every task that the log holds. Safe for concurrent use; Run feeds it.
type Ledger struct {
	client *broker.Client
	log    *slog.Logger

	mu       sync.RWMutex
	tasks    map[subject.TaskID]*Task
	order    []*Task                  // by first entry
	open     map[subject.TaskID]*Task // not ended
	seq      uint64                   // folded up to here, in the task log
	target   uint64                   // where the task log ended when Run began
	loaded   bool                     // seq has reached target
	changes  map[chan subject.TaskID]bool
	waiters  map[uint64][]chan struct{} // by the sequence they wait for
	watchers map[subject.TaskID]map[chan struct{}]bool
}

// New returns an empty ledger over a broker's streams.
func New(client *broker.Client, log *slog.Logger) *Ledger {
	return &Ledger{
		client: client, log: log,
		tasks: map[subject.TaskID]*Task{}, open: map[subject.TaskID]*Task{},
		changes: map[chan subject.TaskID]bool{}, waiters: map[uint64][]chan struct{}{},
		watchers: map[subject.TaskID]map[chan struct{}]bool{},
	}
}

// Run folds the streams, from where the ledger stands, until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	tasks, err := l.client.StreamInfo(ctx, subject.TasksStream)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	status, err := l.client.StreamInfo(ctx, subject.StatusStream)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	l.begin(tasks.State.LastSeq)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, fold := range []func() error{
		func() error { return l.foldTasks(ctx) },
		func() error { return l.foldStatus(ctx, status.State.LastSeq+1) },
	} {
		wg.Go(func() {
			if err := fold(); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && ctx.Err() != nil && err != context.Canceled {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

func (l *Ledger) begin(target uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	l.loaded = l.seq >= target
}

func (l *Ledger) foldTasks(ctx context.Context) error {
	l.mu.RLock()
	from := l.seq + 1
	l.mu.RUnlock()
	for m, err := range l.client.Tail(ctx, subject.TasksStream, from) {
		if err != nil {
			return err
		}
		l.take(m)
	}
	return nil
}

func (l *Ledger) take(m broker.Msg) {
	e := m.Entry() // reading is the costly part: outside the lock
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq = m.Seq
	if id := e.Subject.Task; id != "" {
		t := l.tasks[id]
		if t == nil {
			t = newTask(id)
			l.tasks[id], l.order = t, append(l.order, t)
		}
		t.apply(e, time.Now())
		if t.Ended() {
			delete(l.open, id)
		} else {
			l.open[id] = t
		}
		l.tell(id)
	}
	for at, waiting := range l.waiters {
		if at <= l.seq {
			for _, w := range waiting {
				close(w)
			}
			delete(l.waiters, at)
		}
	}
	if !l.loaded && l.seq >= l.target {
		l.loaded = true
		l.log.Info("views are folded", "tasks", len(l.tasks), "open", len(l.open))
	}
}

// tell wakes whoever watches the task. A watcher that is behind is woken once.
func (l *Ledger) tell(id subject.TaskID) {
	for w := range l.watchers[id] {
		select {
		case w <- struct{}{}:
		default:
		}
	}
	if !l.loaded {
		return
	}
	for c := range l.changes {
		select {
		case c <- id:
		default: // its reader walks over all open tasks now and then
		}
	}
}

// foldStatus takes in how far open tasks are, as they say it from now on: a running task says it every 10 s.
func (l *Ledger) foldStatus(ctx context.Context, from uint64) error {
	for m, err := range l.client.Tail(ctx, subject.StatusStream, from) {
		if err != nil {
			return err
		}
		l.progress(m)
	}
	return nil
}

func (l *Ledger) progress(m broker.Msg) {
	p, ok := subject.Parse(m.Subject)
	if !ok {
		return
	}
	st, err := message.Decode[message.WorkStatus](m.Data)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tasks[p.Task]
	if err == nil && t != nil && !t.Ended() && p.Writer == t.State.Holder && attemptOf(st.Custom) == t.State.Attempt {
		if st.Payload.ProgressPercent != nil {
			t.Percent = max(t.Percent, *st.Payload.ProgressPercent)
		}
		if s := st.Payload.Step; s != nil {
			t.Step = view.Step{Number: s.Number, Name: s.Name}
		}
	}
	for w := range l.watchers[p.Task] {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

func attemptOf(c message.Custom) int {
	if c.Chiffon == nil {
		return 0
	}
	return c.Chiffon.Attempt
}

// Loading reports whether the past is still being folded, and how far that is.
func (l *Ledger) Loading() (loading bool, done, of uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return !l.loaded, l.seq, l.target
}

// Wait returns when the ledger has folded the task log up to a sequence.
func (l *Ledger) Wait(ctx context.Context, seq uint64) error {
	l.mu.Lock()
	if l.seq >= seq {
		l.mu.Unlock()
		return nil
	}
	w := make(chan struct{})
	l.waiters[seq] = append(l.waiters[seq], w)
	l.mu.Unlock()
	select {
	case <-w:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Get returns one task as it is now.
func (l *Ledger) Get(id subject.TaskID) (Task, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	t, ok := l.tasks[id]
	if !ok {
		return Task{}, false
	}
	return *t, true
}

// Open returns every task that has not ended, oldest first.
func (l *Ledger) Open() []Task {
	l.mu.RLock()
	open := make([]Task, 0, len(l.open))
	for _, t := range l.open {
		open = append(open, *t)
	}
	l.mu.RUnlock()
	slices.SortFunc(open, func(a, b Task) int { return int(int64(a.FirstSeq) - int64(b.FirstSeq)) })
	return open
}

// Busy counts, by agent id, the tasks that agents hold or that wait for one of them by name.
func (l *Ledger) Busy() map[string]int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	busy := map[string]int{}
	for _, t := range l.open {
		switch s := t.State; {
		case s.Phase == tasklog.PhaseRunning, s.Phase == tasklog.PhaseCancelling:
			busy[s.Holder]++
		case s.Phase == tasklog.PhaseQueued && s.Target != subject.Any:
			busy[s.Target]++
		}
	}
	return busy
}

// Changes returns a channel that names tasks as they change, until ctx ends. It drops names when its reader is
// behind by 4096: who reads it has to look at Open now and then.
func (l *Ledger) Changes(ctx context.Context) <-chan subject.TaskID {
	c := make(chan subject.TaskID, 4096)
	l.mu.Lock()
	l.changes[c] = true
	l.mu.Unlock()
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.changes, c)
	})
	return c
}

// Find returns the ids that begin with a prefix, at most limit of them.
func (l *Ledger) Find(prefix string, limit int) []subject.TaskID {
	prefix = strings.ToLower(prefix)
	l.mu.RLock()
	defer l.mu.RUnlock()
	if _, ok := l.tasks[subject.TaskID(prefix)]; ok {
		return []subject.TaskID{subject.TaskID(prefix)}
	}
	var found []subject.TaskID
	for _, t := range slices.Backward(l.order) {
		if strings.HasPrefix(string(t.ID), prefix) {
			if found = append(found, t.ID); len(found) == limit {
				break
			}
		}
	}
	return found
}

// Forget drops an ended task whose log has been purged.
func (l *Ledger) Forget(ids ...subject.TaskID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		delete(l.tasks, id)
		delete(l.open, id)
	}
	l.order = slices.DeleteFunc(l.order, func(t *Task) bool { return l.tasks[t.ID] != t })
}

// EndedBefore returns tasks whose end is older than a moment, oldest first, at most limit of them.
func (l *Ledger) EndedBefore(when time.Time, limit int) []subject.TaskID {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var old []subject.TaskID
	for _, t := range l.order {
		if t.Ended() && t.EndedAt.Before(when) {
			if old = append(old, t.ID); len(old) == limit {
				break
			}
		}
	}
	return old
}
