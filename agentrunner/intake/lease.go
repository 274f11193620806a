package intake

import (
	"cmp"
	"context"
	"syscall"
	"time"

	"chiffon/agentrunner/work"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A lease is the time for which a read of the log entitles to go on.
type lease struct {
	from   time.Time
	length time.Duration
}

// left is what is left of it, by the clock that has gone further: one stands while the machine sleeps, the other may
// be set back.
func (l lease) left(now time.Time) time.Duration {
	return l.length - max(now.Sub(l.from), now.Round(0).Sub(l.from.Round(0)))
}

// A hold is what a read of the log says about an attempt.
type hold int

const (
	holdUnknown    hold = iota
	holdMine            // nothing has taken it away
	holdCancelling      // stop is wanted; it is still ours
	holdLost
)

// confirm reads the last entry of an orchestrator about the task: whatever can take it away is written there, and no
// agent may write there. This read is the lease.
func (i *Intake) confirm(ctx context.Context, s *slot) (hold, tasklog.Entry) {
	now := time.Now()
	e, found, err := i.cfg.Broker.Last(ctx, subject.Event(s.task, subject.Orchestrator))
	switch {
	case err != nil:
		s.log.Debug("lease is not confirmed", "error", err)
		return holdUnknown, e
	case !found || e.Seq < s.record.Started:
		s.lease.Store(&lease{from: now, length: i.lease()})
		return holdMine, e
	case e.Err == nil && e.Kind == tasklog.CancelRequested && e.Expect >= s.record.Started:
		return holdCancelling, e
	case e.Err == nil:
		return holdLost, e
	}
	// Something unreadable stands there, and may hide what counts.
	st, err := i.fold(ctx, s)
	if err != nil {
		return holdUnknown, e
	}
	switch {
	case !st.Mine(string(i.cfg.Agent), s.attempt, s.boot):
		return holdLost, e
	case st.Phase == tasklog.PhaseRunning:
		s.lease.Store(&lease{from: now, length: i.lease()})
		return holdMine, e
	case st.Phase == tasklog.PhaseCancelling:
		e.Seq, e.Message.Custom.Chiffon = st.TailSeq, &message.Extension{Cancel: st.Cancel}
		return holdCancelling, e
	}
	return holdLost, e
}

// Why an attempt's work was stopped.
type why int

const (
	notStopped why = iota
	byCancel
	byLoss
	byLease
	byRunner // it ends, or is drained
)

// A stopped tells how it came that work was stopped.
type stopped struct {
	why    why
	cancel uint64 // where the cancel_requested stands
}

// killGrace is how long before the end of a lease repeatable work is killed.
func (i *Intake) killGrace(s *slot) time.Duration {
	return min(i.cfg.KillGrace, s.lease.Load().length/4)
}

// watch holds the lease while the work runs, and stops the work when it is wanted back or this runner ends. It returns
// when the work is over.
func (i *Intake) watch(ctx context.Context, s *slot, l *leash) {
	next := i.lease() / 3
	for stopping := false; ; {
		t := time.NewTimer(next)
		select {
		case <-l.over:
			t.Stop()
			return
		case stop := <-s.halt:
			i.halted(s, l, stop, stopping)
			stopping = true
			t.Stop()
			continue
		case <-s.look:
		case <-t.C:
		}
		t.Stop()
		next, stopping = i.look(ctx, s, l, stopping)
	}
}

// halted stops work because this runner ends; what is being stopped already only sooner.
func (i *Intake) halted(s *slot, l *leash, stop *work.Stop, stopping bool) {
	if stopping {
		l.end(0, i.graceLeft(s, stop.Grace))
		return
	}
	s.stop.why = byRunner
	own := *stop
	own.Grace = i.graceLeft(s, stop.Grace)
	l.stop(&own)
}

// look confirms the lease, and stops the work unless that says that it may go on; next is when to look again. Of work
// that is being stopped it only learns whether somebody wants it stopped sooner, or in another way: the supervisor ends
// it when the lease is over.
func (i *Intake) look(ctx context.Context, s *slot, l *leash, stopping bool) (next time.Duration, stop bool) {
	period := i.lease() / 3
	bound := period
	if s.record.Allowed > 1 && !stopping {
		left := s.lease.Load().left(time.Now()) - i.killGrace(s)
		if left <= 0 {
			s.stop.why = byLease
			l.stop(i.leaseOut(s))
			return period, true
		}
		bound = min(bound, left)
	}
	asked, cancel := context.WithTimeout(ctx, bound)
	h, e := i.confirm(asked, s)
	cancel()
	switch {
	case h == holdCancelling && stopping:
		i.cancelledAgain(s, e, l.end)
	case h == holdCancelling:
		s.stop = stopped{byCancel, e.Seq}
		l.stop(i.cancelled(s, e))
	case stopping:
	case h == holdLost:
		s.stop.why = byLoss
		s.log.Warn("attempt was taken away", "entry", e.Kind, "seq", e.Seq)
		l.stop(&work.Stop{Reason: "the attempt was taken away from this agent", Most: i.mostGrace(s)})
	case h == holdMine:
		if p := l.process.Load(); p != nil && s.record.Allowed > 1 { // other work runs on, through any outage
			p.Deadline(s.lease.Load().left(time.Now()))
		}
		return period, false
	default:
		return i.soon(s, period), false
	}
	return period, true
}

// soon is when to look again after a look that has shown nothing: not a whole period later, for a broker that is back
// has to tell at once what was wanted meanwhile, and in time to kill what may be repeated.
func (i *Intake) soon(s *slot, period time.Duration) time.Duration {
	next := max(min(period/4, retryEvery), 10*time.Millisecond)
	if s.record.Allowed > 1 {
		next = max(min(next, s.lease.Load().left(time.Now())-i.killGrace(s)), time.Millisecond)
	}
	return next
}

// cancelledAgain acts on a later cancel_requested about work that is being stopped: the kill may come sooner by it, never
// later, and another signal is sent.
func (i *Intake) cancelledAgain(s *slot, e tasklog.Entry, end func(syscall.Signal, time.Duration)) {
	if e.Seq <= s.stop.cancel {
		return
	}
	if s.stop.why == byCancel {
		s.stop.cancel = e.Seq
	}
	i.mu.Lock()
	killAt, signal := s.killAt, s.signal
	i.mu.Unlock()
	c := i.cancelled(s, e)
	left := time.Until(killAt)
	switch {
	case c.Grace > 0 && (killAt.IsZero() || c.Grace < left):
		left = c.Grace
	case c.Signal == "" || c.Signal == signal:
		return // it wants no more than the one before
	case killAt.IsZero():
		left = 0
	}
	end(c.First(), left)
}

// mostGrace bounds the time that work may take to stop: what may be repeated must be gone when the lease is over. 0 means
// that nothing presses.
func (i *Intake) mostGrace(s *slot) time.Duration {
	if s.record.Allowed <= 1 {
		return 0
	}
	return max(s.lease.Load().left(time.Now())-i.killGrace(s), time.Millisecond)
}

// graceLeft is what of a wanted time there is to stop in; wanted 0 leaves it to the work type.
func (i *Intake) graceLeft(s *slot, wanted time.Duration) time.Duration {
	if most := i.mostGrace(s); most > 0 {
		return min(wanted, most)
	}
	return wanted
}

func (i *Intake) leaseOut(s *slot) *work.Stop {
	s.log.Warn("lease runs out, the broker cannot be reached: the work is killed")
	flt := fault.New(fault.Timeout, "agent %s could not reach the broker for a lease of %s, so the work was stopped", i.cfg.Agent, s.lease.Load().length).
		With("attempted_retries", s.attempt-1).With("last_attempt", s.lease.Load().from.UTC().Format(time.RFC3339))
	return &work.Stop{Signal: "SIGKILL", Grace: time.Millisecond, Reason: flt.Message, Fault: flt}
}

// cancelled is the stop that a cancel_requested asks for.
func (i *Intake) cancelled(s *slot, e tasklog.Entry) *work.Stop {
	stop := &work.Stop{Reason: "cancelled"}
	if x := e.Message.Custom.Chiffon; x != nil && x.Cancel != nil {
		c := x.Cancel
		stop.Signal = c.Signal
		stop.Grace = time.Duration(c.GraceSeconds) * time.Second
		switch {
		case c.Deadline:
			stop.Reason = "its time is over"
			stop.Fault = fault.New(fault.Timeout, "the task's time is over%s", because(c.Reason)).
				With("attempted_retries", s.attempt-1).With("last_attempt", s.filled.UTC().Format(time.RFC3339))
		case c.By != "":
			stop.Reason = "cancelled by " + c.By + because(c.Reason)
		default:
			stop.Reason = "cancelled" + because(c.Reason)
		}
	}
	stop.Grace, stop.Most = i.graceLeft(s, stop.Grace), i.mostGrace(s)
	s.log.Info("stop is wanted", "reason", stop.Reason)
	i.mu.Lock()
	defer i.mu.Unlock()
	grace := cmp.Or(stop.Grace, stop.Most)
	if at := time.Now().Add(grace); grace > 0 && (s.killAt.IsZero() || at.Before(s.killAt)) {
		s.killAt = at
	}
	if stop.Signal != "" {
		s.signal = stop.Signal
	}
	return stop
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
