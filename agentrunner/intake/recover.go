package intake

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/report"
	"chiffon/agentrunner/work"
	"chiffon/pkg/message"
)

// settle tells the log what became of an attempt of an earlier life. It is never run again: that it was ours entitles
// to report, not to run.
func (i *Intake) settle(ctx context.Context, s *slot) {
	defer i.empty(s)
	switch {
	case s.record.Late != nil:
		i.tellLate(ctx, s)
		return
	case s.record.Outcome != nil:
		s.log.Info("outcome of an earlier life is told")
		i.tell(ctx, s, *s.record.Outcome)
		return
	}
	for {
		e, found, err := i.cfg.Broker.Last(ctx, i.own(s))
		if err != nil {
			if !sleep(ctx, retryEvery) {
				return
			}
			continue
		}
		if !found || e.ID != s.record.Entry && (e.Attempt != s.attempt || e.Boot != s.boot) {
			i.remove(s) // its started entry was never stored
			return
		}
		s.record.Started = e.Seq
		break
	}
	e := ending{outcome: work.Outcome{Status: message.ResultFailed, Fault: i.died(s)}, begun: s.record.Begun}
	var r *report.Reporter
	if s.record.Begun && s.record.Allowed <= 1 {
		var ok bool
		if e, r, ok = i.outlived(ctx, s, e); !ok {
			return
		}
	} else {
		s.stop.why = byLoss // its supervisor has ended it
	}
	if r == nil && s.record.Begun {
		e.summary, _ = i.reported(ctx, s)
	}
	i.tidy(s)
	i.end(ctx, s, e, r)
}

// tidy removes the directories of an attempt whose work is over.
func (i *Intake) tidy(s *slot) {
	dirs, err := filepath.Glob(filepath.Join(i.cfg.Dir, string(s.task)+"-*"))
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		s.log.Warn("directory of an earlier attempt stays", "error", err)
	}
}

// outlived waits for the outcome of work that went on without its runner, and ends the work when stop is wanted. It
// returns died when nobody knows the outcome, and no reporter then; ok is false when ctx ended before.
func (i *Intake) outlived(ctx context.Context, s *slot, died ending) (e ending, r *report.Reporter, ok bool) {
	type outcome struct {
		work.Outcome
		kept child.Survivor
		err  error
	}
	keep := i.cfg.Spool.Keep(s.task)
	known := make(chan outcome, 1)
	go func() {
		var o outcome
		o.Outcome, o.kept, o.err = work.Recover(ctx, keep)
		known <- o
	}()
	var stop *work.Stop
	for look := time.NewTimer(0); ; { // at once: what was wanted while no runner was there comes before anything else
		select {
		case o := <-known:
			look.Stop()
			switch {
			case ctx.Err() != nil:
				return died, nil, false
			case o.err != nil:
				s.log.Warn("outcome of an earlier life is lost", "error", o.err)
				return died, nil, true
			case stop != nil && o.kept.Outcome.Stopped && o.Fault == nil:
				o.Outcome = stop.Outcome(o.Outcome)
			}
			o.Resources.DurationSeconds = i.lasted(s)
			sum, r := i.rest(ctx, s, o.kept, o.Note)
			return ending{outcome: o.Outcome, summary: sum, begun: true}, r, true
		case wanted := <-s.halt:
			if stop == nil {
				stop, s.stop.why = wanted, byRunner
			}
			child.StopKept(keep, 0, wanted.Grace)
			continue
		case <-look.C:
		case <-s.look:
		}
		look.Reset(i.lookKept(ctx, s, keep, &stop))
	}
}

// lookKept stops work that went on without its runner when that is wanted; it returns when to look again.
func (i *Intake) lookKept(ctx context.Context, s *slot, keep string, stop **work.Stop) time.Duration {
	period := i.lease() / 3
	h, e := i.confirm(ctx, s)
	switch {
	case h == holdUnknown:
		return i.soon(s, period)
	case h == holdCancelling && *stop != nil:
		i.cancelledAgain(s, e, func(signal syscall.Signal, grace time.Duration) { child.StopKept(keep, signal, grace) })
	case h == holdCancelling:
		*stop, s.stop = i.cancelled(s, e), stopped{byCancel, e.Seq}
		child.StopKept(keep, (*stop).First(), (*stop).Grace)
	case h == holdLost && *stop == nil:
		*stop, s.stop.why = &work.Stop{Reason: "the attempt was taken away from this agent"}, byLoss
		child.StopKept(keep, 0, 0)
	}
	return period
}

// lasted is how long work ran whose outcome was kept, in seconds.
func (i *Intake) lasted(s *slot) int {
	info, err := os.Stat(i.cfg.Spool.Keep(s.task))
	if err != nil || s.record.BegunAt.IsZero() {
		return 0
	}
	return max(0, int((info.ModTime().Sub(s.record.BegunAt)+time.Second-1)/time.Second))
}
