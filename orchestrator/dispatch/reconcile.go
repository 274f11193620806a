package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// workers is how many entries are appended at a time. maxStrays bounds how many of them end requests that somebody
// put there by hand: those are as many as anybody likes, and nobody waits for them.
const (
	workers   = 8
	maxStrays = 200
)

// A job is what was decided for a task, and is to be appended.
type job struct {
	task ledger.Task
	act  action
}

// A reconciler decides what is to be done; its workers do it, one thing at a time for each task. Its fields belong to
// the goroutine that decides.
type reconciler struct {
	d      *Dispatcher
	latest *world                  // what was looked at last
	todo   []job                   // what no worker has yet, the most urgent first
	under  map[subject.TaskID]job  // what is in todo, or in the hands of a worker
	again  map[subject.TaskID]bool // of these, what has changed meanwhile
	strays int                     // of these, requests put there by hand
	place  <-chan time.Time        // when to look for places, because that may have changed
	cost   time.Duration           // of the latest sweep
}

func (d *Dispatcher) reconcile(ctx context.Context) error {
	r := &reconciler{d: d, under: map[subject.TaskID]job{}, again: map[subject.TaskID]bool{}}
	jobs, done := make(chan job), make(chan job, workers)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for j := range jobs {
				d.do(ctx, j)
				select {
				case done <- j:
				case <-ctx.Done():
				}
			}
		})
	}
	defer wg.Wait()
	defer close(jobs)
	r.run(ctx, jobs, done)
	return nil
}

func (r *reconciler) run(ctx context.Context, jobs chan<- job, done <-chan job) {
	d := r.d
	changes, agents := d.ledger.Changes(ctx), d.agents.Changed()
	look, pulse, sweep := time.NewTicker(lookEvery), time.NewTicker(pulseEvery), time.NewTicker(d.cfg.Sweep)
	defer look.Stop()
	defer pulse.Stop()
	defer sweep.Stop()
	last := time.Now()
	d.restart(last)
	for {
		var out chan<- job
		var next job
		if len(r.todo) > 0 {
			out, next = jobs, r.todo[0]
		}
		var step func()
		select {
		case <-ctx.Done():
			return
		case out <- next:
			step = func() { r.todo = r.todo[1:] }
		case j := <-done:
			step = func() { r.done(j) }
		case id := <-changes:
			step = func() { r.changed(id) }
		case <-agents:
			agents = d.agents.Changed()
			step = func() { r.sweep(waiting) }
		case <-r.place:
			r.place = nil
			step = func() { r.sweep(func(t *ledger.Task) bool { return t.State.Phase == tasklog.PhaseHeld }) }
		case <-look.C:
			step = func() { r.sweep(timed) }
		case <-pulse.C:
			step = func() { r.sweep(inHand) }
		case <-sweep.C:
			step = func() { r.sweep(func(*ledger.Task) bool { return true }) }
		}
		r.wake(last, time.Now())
		step()
		last = time.Now() // a long look at many tasks is no stop
	}
}

// wake makes all timers start anew where this process was stopped since its last step, or is cut off: what it believes
// of others' silence is void, since it has not read yet what has come meanwhile.
func (r *reconciler) wake(last, now time.Time) {
	if now.Sub(last) > stopped || !r.d.client.Connected() {
		r.latest = nil
		r.d.restart(now)
	}
}

// waiting chooses what an agent's coming may change.
func waiting(t *ledger.Task) bool {
	p := t.State.Phase
	return p == tasklog.PhaseHeld || p == tasklog.PhaseQueued || p == tasklog.PhaseRunning || p == tasklog.PhaseCancelling
}

// inHand chooses what somebody holds: those tasks are not many, and the sooner a silent holder is noticed the sooner
// its work goes on.
func inHand(t *ledger.Task) bool {
	return t.State.Phase == tasklog.PhaseRunning || t.State.Phase == tasklog.PhaseCancelling
}

// timed chooses what waits for a moment that is short, or for a slot that somebody may have left.
func timed(t *ledger.Task) bool {
	p := t.State.Phase
	return p == tasklog.PhaseFailed || p == tasklog.PhaseNone || p == tasklog.PhaseHeld || !t.Expires.IsZero()
}

// sweep looks at all open tasks that choose wants, but for those that are in hand.
func (r *reconciler) sweep(choose func(*ledger.Task) bool) {
	if loading, _, _ := r.d.ledger.Loading(); loading || !r.d.leads.Load() {
		return
	}
	began := time.Now()
	r.latest = r.world(began)
	room := maxStrays - r.strays
	chosen := r.d.ledger.Open(func(t *ledger.Task) bool {
		if _, under := r.under[t.ID]; under || !choose(t) {
			return false
		}
		if t.State.Phase == tasklog.PhaseNone {
			room--
			return room >= 0
		}
		return true
	})
	for _, t := range urgent(chosen) {
		if j, ok := r.decide(t); ok {
			r.todo = append(r.todo, j)
		}
	}
	slices.SortStableFunc(r.todo, func(a, b job) int { return moreUrgent(a.task, b.task) })
	r.cost = time.Since(began)
}

// changed looks at one task that has just changed. What waits for a place is not looked at alone: another may be more
// urgent. Nor are strays: the sweeps take some of them at a time.
func (r *reconciler) changed(id subject.TaskID) {
	t, ok := r.d.ledger.Get(id)
	if !ok {
		return
	}
	if t.Ended() || t.State.Phase == tasklog.PhaseRunning {
		r.d.begun(t.ID)
	}
	if t.State.Phase == tasklog.PhaseCancelling {
		// Every orchestrator answers heartbeats, and the first answer counts: each pokes once it knows of the cancel
		// itself, so that the last of them is followed by an answer that tells of it.
		r.d.poke(t.State.Holder)
	}
	if t.Ended() || t.State.Phase == tasklog.PhaseHeld {
		r.placeSoon()
		return
	}
	if _, under := r.under[id]; under {
		r.again[id] = true
		return
	}
	if t.State.Phase == tasklog.PhaseNone || !r.d.leads.Load() {
		return
	}
	now := time.Now()
	if r.latest == nil || now.Sub(r.latest.now) > lookEvery {
		r.latest = r.world(now)
	}
	r.latest.now = now
	if j, ok := r.decide(t); ok {
		at, _ := slices.BinarySearchFunc(r.todo, j, func(a, b job) int { return moreUrgent(a.task, b.task) })
		r.todo = slices.Insert(r.todo, at, j)
	}
}

// placeSoon has the held tasks looked at, once for all changes of a moment: the longer that takes, the more rarely.
func (r *reconciler) placeSoon() {
	if r.place == nil {
		r.place = time.After(max(10*time.Millisecond, 4*r.cost))
	}
}

func (r *reconciler) decide(t ledger.Task) (job, bool) {
	a, ok := decide(t, r.latest)
	if !ok {
		return job{}, false
	}
	r.latest.took(t, a)
	j := job{task: t, act: a}
	r.under[t.ID] = j
	if t.State.Phase == tasklog.PhaseNone {
		r.strays++
	}
	return j, true
}

func (r *reconciler) done(j job) {
	delete(r.under, j.task.ID)
	if j.task.State.Phase == tasklog.PhaseNone {
		r.strays--
	}
	if r.again[j.task.ID] {
		delete(r.again, j.task.ID)
		r.changed(j.task.ID)
	}
}

// world is the dispatcher's, with what was promised and is not in the log yet.
func (r *reconciler) world(now time.Time) *world {
	w := r.d.world(now)
	for _, j := range r.under {
		w.took(j.task, j.act)
	}
	return w
}

// do appends what was decided, and waits until the views show it: they are what the next decisions rest on.
func (d *Dispatcher) do(ctx context.Context, j job) {
	switch seq, err := d.act(ctx, j.task, j.act); {
	case err == nil:
		if j.act.lapsed != "" {
			wait := d.cfg.Lease
			if j.act.refused != 0 {
				wait = d.refusal()
			}
			d.lapses.note(j.task.ID, j.act.lapsed, time.Now(), wait, j.act.refused)
		}
		d.shown(ctx, seq)
	case errors.Is(err, broker.ErrRefused), ctx.Err() != nil:
		// Somebody was faster: the ledger will show it, and the task is looked at again.
	default:
		d.log.Warn("task is not moved on", "task_id", j.task.ID, "trace_id", j.task.TraceID, "entry", j.act.kind, "error", err)
	}
}

// begun forgets what kept a task from beginning.
func (d *Dispatcher) begun(id subject.TaskID) {
	d.mu.Lock()
	delete(d.requeued, id)
	d.mu.Unlock()
	d.lapses.forget(id)
}
