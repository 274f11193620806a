package intake

import (
	"context"
	"time"

	"chiffon/agentrunner/child"
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
			i.stopNow(s, l, stop, stopping)
			stopping = true
		case <-s.look:
		case <-t.C:
		}
		t.Stop()
		if stopping {
			next = time.Hour // the supervisor ends it at the end of the lease
			continue
		}
		next, stopping = i.look(ctx, s, l)
	}
}

// stopNow stops work because this runner ends; what is being stopped already only sooner.
func (i *Intake) stopNow(s *slot, l *leash, stop *work.Stop, stopping bool) {
	if !stopping {
		s.stop.why = byRunner
		own := *stop
		own.Grace = i.graceLeft(s, stop.Grace)
		l.stop(&own)
	} else if p := l.process.Load(); p != nil {
		p.Stop(0, i.graceLeft(s, stop.Grace))
	}
}

// look confirms the lease, and stops the work unless that says that it may go on; next is when to look again.
func (i *Intake) look(ctx context.Context, s *slot, l *leash) (next time.Duration, stopping bool) {
	left := s.lease.Load().left(time.Now()) - i.killGrace(s)
	if s.record.Allowed > 1 && left <= 0 {
		s.stop.why = byLease
		l.stop(i.leaseOut(s))
		return 0, true
	}
	period := i.lease() / 3
	bound := period
	if s.record.Allowed > 1 {
		bound = min(bound, left)
	}
	asked, cancel := context.WithTimeout(ctx, bound)
	h, e := i.confirm(asked, s)
	cancel()
	switch h {
	case holdMine:
		if p := l.process.Load(); p != nil && s.record.Allowed > 1 { // other work runs on, through any outage
			p.Deadline(s.lease.Load().left(time.Now()))
		}
		return period, false
	case holdCancelling:
		s.stop = stopped{byCancel, e.Seq}
		c := i.cancelled(s, e)
		s.log.Info("stop is wanted", "reason", c.Reason)
		i.mu.Lock()
		if at := time.Now().Add(c.Grace); c.Grace > 0 && (s.killAt.IsZero() || at.Before(s.killAt)) {
			s.killAt = at
		}
		i.mu.Unlock()
		l.stop(c)
		return 0, true
	case holdLost:
		s.stop.why = byLoss
		s.log.Warn("attempt was taken away", "entry", e.Kind, "seq", e.Seq)
		l.stop(&work.Stop{Reason: "the attempt was taken away from this agent", Grace: i.graceLeft(s, 0)})
		return 0, true
	}
	// not the whole period: a broker that is back has to tell at once what was wanted meanwhile
	next = max(min(period/4, retryEvery), 10*time.Millisecond)
	if s.record.Allowed > 1 {
		next = max(min(next, s.lease.Load().left(time.Now())-i.killGrace(s)), time.Millisecond)
	}
	return next, false
}

// graceLeft bounds the time that work may take to stop: what may be repeated must be gone when the lease is over.
// wanted 0 leaves it to the work type where nothing presses.
func (i *Intake) graceLeft(s *slot, wanted time.Duration) time.Duration {
	if s.record.Allowed <= 1 {
		return wanted
	}
	if wanted <= 0 {
		wanted = child.DefaultGrace
	}
	return min(wanted, max(s.lease.Load().left(time.Now())-i.killGrace(s), time.Millisecond))
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
	stop.Grace = i.graceLeft(s, stop.Grace)
	return stop
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}
