package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// Run folds the streams, from where the ledger stands, until ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	last, from, err := l.places(ctx)
	for ; err != nil; last, from, err = l.places(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		if broker.Lost(err) || errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("ledger: %w", err)
		}
		l.log.Debug("streams are asked again where they end", "error", err) // the broker is away
		select {
		case <-ctx.Done():
		case <-time.After(recordAgain):
		}
	}
	l.begin(last)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, fold := range []func() error{
		func() error { return l.foldTasks(ctx) },
		func() error { return l.foldStatus(ctx, last, from) },
		func() error { return l.watchEnd(ctx) },
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

// places tells where the task log ends now, and from where statuses are to be read.
func (l *Ledger) places(ctx context.Context) (last, from uint64, err error) {
	if last, err = l.client.End(ctx, subject.TasksStream, subject.Task("*")); err != nil {
		return 0, 0, err
	}
	status, err := l.client.StreamInfo(ctx, subject.StatusStream)
	if err != nil {
		return 0, 0, err
	}
	from, err = l.marked(ctx, status.State.LastSeq)
	return last, from, err
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
	// Ids are in lower case; what somebody put below another spelling belongs to no task.
	if id := string(e.Subject.Task); id != "" && id == strings.ToLower(id) {
		l.enter(e)
	} else {
		l.log.Warn("entry belongs to no task", "subject", m.Subject, "seq", m.Seq)
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

// enter folds one entry of a task. What is known by void entries alone is no task yet: any agent can write those.
func (l *Ledger) enter(e tasklog.Entry) {
	id := e.Subject.Task
	t := l.tasks[id]
	if t == nil {
		t = l.first(e)
	}
	before := t.State
	waited := t.waits()
	void := t.apply(e, time.Now())
	l.say(t, before, e, void)
	l.void(e, void)
	l.count(t, waited, t.waits())
	l.hold(t, before)
	if !t.known() {
		l.litter(t, e)
		l.wakeWatchers(id)
		return
	}
	if l.tasks[id] == nil {
		delete(l.junk, id)
		l.tasks[id] = t
		l.order = append(l.order, t)
	}
	l.open[id] = t
	if t.Ended() {
		delete(l.open, id)
	}
	l.tell(id)
}

// tell wakes whoever watches the task. A watcher that is behind is woken once.
func (l *Ledger) tell(id subject.TaskID) {
	l.wakeWatchers(id)
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

func (l *Ledger) wakeWatchers(id subject.TaskID) {
	for w := range l.watchers[id] {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// recordAgain is when to try again to read what the broker, which is away, did not tell.
const recordAgain = 250 * time.Millisecond

// foldStatus takes in how far open tasks are, as they say it from now on (a running task says it every 10 s), and what
// came too late to be recorded. It begins when the tasks are known that the log held then.
func (l *Ledger) foldStatus(ctx context.Context, tasks, from uint64) error {
	if err := l.Wait(ctx, tasks); err != nil {
		return nil // ctx has ended
	}
	for {
		err := l.ReadRecord(ctx)
		if err == nil || broker.Lost(err) { // then Tail says so
			break
		}
		l.log.Debug("record is read again", "error", err) // the broker is away; Tail tells when it does not come back
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(recordAgain):
		}
	}
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
	l.statusSeq = m.Seq
	t := l.tasks[p.Task]
	if err == nil && t != nil && st.Custom.Chiffon != nil && st.Custom.Chiffon.Late {
		l.cameLate(t, p.Writer, st, m.Time)
	} else if err == nil && t != nil && !t.Ended() && p.Writer == t.State.Holder && attemptOf(st.Custom) == t.State.Attempt {
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
