// Package ledger is what has happened: the streams folded into views, and the only writer of views. It knows nothing
// of its readers, who watch it, and decides nothing.
package ledger

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A Ledger holds every task that the log holds. Safe for concurrent use; Run feeds it.
type Ledger struct {
	client *broker.Client
	log    *slog.Logger

	mu      sync.RWMutex
	tasks   map[subject.TaskID]*Task
	order   []*Task                             // by first entry
	junk    map[subject.TaskID]junk             // ids that are known by void entries alone
	dropped bool                                // there were more of those than are kept
	open    map[subject.TaskID]*Task            // not ended
	held    map[string]map[subject.TaskID]*Task // by the agent that holds them
	ofType  map[subject.AgentType]int           // tasks that wait, by type of agents
	by      map[string]int                      // and by submitter
	seq     uint64                              // folded up to here, in the task log
	target  uint64                              // the last entry that the task log held when Run began
	loaded  bool                                // seq has reached target
	owed    end                                 // the oldest end of the task log that was seen and not folded then
	latest  uint64                              // the newest that was seen
	changes map[chan subject.TaskID]bool
	facts   map[chan Fact]bool
	odd     []Odd // not known to be on record

	statusSeq uint64                     // the last status that was read
	waiters   map[uint64][]chan struct{} // by the sequence they wait for
	watchers  map[subject.TaskID]map[chan struct{}]bool
}

// New returns an empty ledger over a broker's streams.
func New(client *broker.Client, log *slog.Logger) *Ledger {
	return &Ledger{
		client: client, log: log,
		tasks: map[subject.TaskID]*Task{}, open: map[subject.TaskID]*Task{}, held: map[string]map[subject.TaskID]*Task{},
		ofType: map[subject.AgentType]int{}, by: map[string]int{}, junk: map[subject.TaskID]junk{},
		changes: map[chan subject.TaskID]bool{}, facts: map[chan Fact]bool{}, waiters: map[uint64][]chan struct{}{},
		watchers: map[subject.TaskID]map[chan struct{}]bool{},
	}
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
	if !ok || !t.known() {
		return Task{}, false
	}
	return *t, true
}

// Open returns the tasks that have not ended and that choose wants, oldest first. choose must not keep or change what
// it is shown, nor call the ledger.
func (l *Ledger) Open(choose func(*Task) bool) []Task {
	l.mu.RLock()
	var open []Task
	for _, t := range l.open {
		if choose(t) {
			open = append(open, *t)
		}
	}
	l.mu.RUnlock()
	slices.SortFunc(open, func(a, b Task) int { return cmp.Compare(a.FirstSeq, b.FirstSeq) })
	return open
}

// Busy counts, by agent id, the tasks that agents hold or that wait for one of them by name.
func (l *Ledger) Busy() map[string]int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	busy := map[string]int{}
	for _, t := range l.open {
		switch s := t.State; {
		case holds(s):
			busy[s.Holder]++
		case s.Phase == tasklog.PhaseQueued && s.Target != subject.Any:
			busy[s.Target]++
		}
	}
	return busy
}

// Held returns the tasks that an agent holds by the log.
func (l *Ledger) Held(agent subject.AgentID) []Task {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var held []Task
	for _, t := range l.held[string(agent)] {
		held = append(held, *t)
	}
	slices.SortFunc(held, func(a, b Task) int { return cmp.Compare(a.FirstSeq, b.FirstSeq) })
	return held
}

// hold keeps who holds a task; before is what it was.
func (l *Ledger) hold(t *Task, before tasklog.State) {
	if holds(before) && (!holds(t.State) || before.Holder != t.State.Holder) {
		delete(l.held[before.Holder], t.ID)
		if len(l.held[before.Holder]) == 0 {
			delete(l.held, before.Holder)
		}
	}
	if holds(t.State) {
		if l.held[t.State.Holder] == nil {
			l.held[t.State.Holder] = map[subject.TaskID]*Task{}
		}
		l.held[t.State.Holder][t.ID] = t
	}
}

func holds(s tasklog.State) bool {
	return s.Phase == tasklog.PhaseRunning || s.Phase == tasklog.PhaseCancelling
}

// Waiting counts the tasks that wait for agents of a type, and those that wait of a submitter: what has not begun, and
// what waits for its next attempt. While the past is being folded it knows of less.
func (l *Ledger) Waiting(t subject.AgentType, submitter string) (ofType, bySubmitter int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.ofType[t], l.by[submitter]
}

// count keeps the numbers of waiting tasks when one begins or ends to wait.
func (l *Ledger) count(t *Task, was, is bool) {
	step := 0
	switch {
	case is && !was:
		step = 1
	case was && !is:
		step = -1
	default:
		return
	}
	if l.ofType[t.Type] += step; l.ofType[t.Type] == 0 {
		delete(l.ofType, t.Type)
	}
	if l.by[t.SubmittedBy] += step; l.by[t.SubmittedBy] == 0 {
		delete(l.by, t.SubmittedBy)
	}
}

// A Placing is one agent's line of tasks at a priority.
type Placing struct {
	Agent    string
	Priority subject.Priority
}

// Placed counts the tasks that were put to an agent nobody had asked for, and that it has not started yet.
func (l *Ledger) Placed() map[Placing]int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	placed := map[Placing]int{}
	for _, t := range l.open {
		if s := t.State; s.Phase == tasklog.PhaseQueued && s.Target != subject.Any && s.Target != t.Agent {
			placed[Placing{s.Target, s.Priority}]++
		}
	}
	return placed
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
	if t, ok := l.tasks[subject.TaskID(prefix)]; ok && t.known() {
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
		if t := l.tasks[id]; t != nil {
			l.count(t, t.waits(), false)
			delete(l.held[t.State.Holder], id)
		}
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
