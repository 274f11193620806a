package dispatch

import (
	"context"
	"errors"
	"time"

	"chiffon/orchestrator/ledger"
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
		a := action{kind: tasklog.Cancelled, cancel: &want}
		switch s.Phase {
		case tasklog.PhaseNone:
			return false, ErrUnknown
		case tasklog.PhaseEnded:
			return true, nil
		case tasklog.PhaseCancelling:
			if !want.Force || s.Allowed > 1 {
				return false, nil // it is on its way
			}
			if err := d.patience(ctx, id, s.TailSeq); err != nil {
				return false, err
			}
			a = d.world(time.Now()).unconfirmed(ledger.Task{State: s, StartedAt: began(log, s)})
		case tasklog.PhaseRunning:
			a = action{kind: tasklog.CancelRequested, cancel: &want}
		case tasklog.PhaseFailed:
			if s.Silent {
				if err := d.patience(ctx, id, s.TailSeq); err != nil {
					return false, err
				}
			}
		case tasklog.PhaseHeld, tasklog.PhaseQueued:
		}
		t, _ := d.ledger.Get(id)
		t.ID, t.State = id, s // the log is ahead of the views
		switch seq, err := d.act(ctx, t, a); {
		case err == nil:
			d.shown(ctx, seq)
			return false, nil
		case !errors.Is(err, broker.ErrRefused):
			return false, err
		}
	}
}

// began is when the latest attempt of a log was started.
func began(log []tasklog.Entry, s tasklog.State) time.Time {
	for _, e := range log {
		if e.Seq == s.StartSeq {
			return e.Time
		}
	}
	return time.Time{}
}

// patience waits until whoever held a task has certainly stopped since it was revoked, or something else has happened.
func (d *Dispatcher) patience(ctx context.Context, id subject.TaskID, tail uint64) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		t, _ := d.ledger.Get(id)
		w := world{now: time.Now(), since: d.started(), lease: d.cfg.Lease, grace: d.cfg.Grace}
		if t.State.TailSeq > tail || t.State.TailSeq == tail && w.settled(t) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// shown waits a little until the views have what is stored. They may be behind, after a start; the log decides.
func (d *Dispatcher) shown(ctx context.Context, seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := d.ledger.Wait(ctx, seq); err != nil {
		d.log.Debug("views are behind", "seq", seq, "error", err)
	}
}
