package dispatch

import (
	"cmp"
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

// Cancel wants a task stopped. It returns when that is stored: work that has not begun is then cancelled for good, all
// other work is being stopped. ended is true when the task had ended before. A cancel of what is being stopped already
// changes nothing, unless it is the first that wants force.
func (d *Dispatcher) Cancel(ctx context.Context, id subject.TaskID, want message.Cancel) (ended bool, err error) {
	for {
		log, err := d.client.Task(ctx, id)
		if err != nil {
			return false, err
		}
		s := tasklog.Fold(log)
		t, _ := d.ledger.Get(id)
		t.ID, t.State = id, s // the log is ahead of the views
		a, ok := stop(t, want)
		switch {
		case s.Phase == tasklog.PhaseNone:
			return false, ErrUnknown
		case !ok:
			return s.Phase == tasklog.PhaseEnded, nil
		}
		switch seq, err := d.act(ctx, t, a); {
		case err == nil:
			d.shown(ctx, seq)
			return false, nil
		case !errors.Is(err, broker.ErrRefused):
			return false, err
		}
	}
}

// stop is the entry that a wish to stop a task is stored as; ok is false when there is nothing to be stored.
func stop(t ledger.Task, want message.Cancel) (a action, ok bool) {
	request := action{kind: tasklog.CancelRequested, cancel: &want}
	switch s := t.State; s.Phase {
	case tasklog.PhaseHeld, tasklog.PhaseQueued:
		return action{kind: tasklog.Cancelled, cancel: &want}, true
	case tasklog.PhaseRunning:
		return request, true
	case tasklog.PhaseFailed:
		if s.Silent {
			return request, true // whoever held it may be at it still
		}
		return action{kind: tasklog.Cancelled, cancel: &want}, true
	case tasklog.PhaseCancelling:
		if s.Cancel == nil || !want.Force || s.Cancel.Force {
			return action{}, false
		}
		more := *s.Cancel // all that was wanted before is still wanted
		more.Force = true
		more.By, more.Reason = want.By, cmp.Or(want.Reason, more.Reason)
		more.Signal, more.GraceSeconds = cmp.Or(want.Signal, more.Signal), cmp.Or(want.GraceSeconds, more.GraceSeconds)
		return action{kind: tasklog.CancelRequested, cancel: &more}, true
	case tasklog.PhaseNone, tasklog.PhaseEnded:
	}
	return action{}, false
}

// shown waits a little until the views have what is stored. They may be behind, after a start; the log decides.
func (d *Dispatcher) shown(ctx context.Context, seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := d.ledger.Wait(ctx, seq); err != nil {
		d.log.Debug("views are behind", "seq", seq, "error", err)
	}
}
