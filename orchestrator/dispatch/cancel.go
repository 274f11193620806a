package dispatch

import (
	"context"
	"errors"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// ErrUnknown comes back for a task of which the log knows nothing.
var ErrUnknown = errors.New("no such task")

// Cancel wants a task stopped. It returns when that is stored: work that has not begun is then cancelled for good,
// running work is being stopped by its runner. ended is true when the task had ended before.
func (d *Dispatcher) Cancel(ctx context.Context, id subject.TaskID, want message.Cancel) (ended bool, err error) {
	for {
		log, err := d.client.Task(ctx, id)
		if err != nil {
			return false, err
		}
		s := tasklog.Fold(log)
		a := action{kind: tasklog.Cancelled}
		switch s.Phase {
		case tasklog.PhaseNone:
			return false, ErrUnknown
		case tasklog.PhaseEnded:
			return true, nil
		case tasklog.PhaseCancelling:
			return false, nil
		case tasklog.PhaseRunning:
			a = action{kind: tasklog.CancelRequested, cancel: &want}
		case tasklog.PhaseFailed:
			if s.Silent {
				if err := d.patience(ctx, id); err != nil {
					return false, err
				}
			}
		case tasklog.PhaseHeld, tasklog.PhaseQueued:
		}
		t, _ := d.ledger.Get(id)
		t.ID, t.State = id, s // the log is ahead of the views
		switch err := d.act(ctx, t, a); {
		case err == nil:
			return false, d.seen(ctx, id, s.TailSeq)
		case !errors.Is(err, broker.ErrRefused):
			return false, err
		}
	}
}

// patience waits until an attempt that was revoked for silence has certainly stopped, or something else happens.
func (d *Dispatcher) patience(ctx context.Context, id subject.TaskID) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		t, ok := d.ledger.Get(id)
		if !ok || t.State.Phase != tasklog.PhaseFailed || !t.State.Silent || time.Since(t.Seen) >= d.cfg.Lease+d.cfg.Grace {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// seen waits until the views show what was appended behind a tail.
func (d *Dispatcher) seen(ctx context.Context, id subject.TaskID, tail uint64) error {
	e, found, err := d.client.Last(ctx, subject.Event(id, subject.Orchestrator))
	if err != nil || !found {
		return err
	}
	return d.ledger.Wait(ctx, max(e.Seq, tail))
}
