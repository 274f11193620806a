package dispatch

import (
	"context"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

// A Crowded error comes back from Submit when as many tasks wait as may. Its fault is a 5005.
type Crowded struct{ Fault *fault.Fault }

func (c *Crowded) Error() string { return c.Fault.Error() }

// admit says why nothing new is accepted of a type of agents from a submitter; nil when it is. The counts may be behind
// by what is just being accepted: the limits keep a broker from being filled, they are no ration.
func (d *Dispatcher) admit(t subject.AgentType, by string) error {
	if err := d.Room(); err != nil {
		return err
	}
	ofType, bySubmitter := d.ledger.Waiting(t, by)
	if ofType >= d.cfg.MaxQueued {
		return &Crowded{fault.New(fault.ResourceLimitExceeded, "%d tasks for agents of type %s wait already, as many as may: try again when some have begun", ofType, t).
			With("limit_name", "max_queued").With("available", d.cfg.MaxQueued).With("required", ofType+1)}
	}
	if bySubmitter >= d.cfg.MaxQueuedPerSubmitter {
		return &Crowded{fault.New(fault.ResourceLimitExceeded, "%d tasks of %s wait already, as many as may: try again when some have begun", bySubmitter, by).
			With("limit_name", "max_queued_per_submitter").With("available", d.cfg.MaxQueuedPerSubmitter).With("required", bySubmitter+1)}
	}
	return nil
}

// Room says why nothing new can be stored: nil, ErrFull, or an error that wraps ErrNoRoom.
func (d *Dispatcher) Room() error {
	if d.full.Load() {
		return ErrFull
	}
	return d.cfg.Room()
}

// accepted finds the entry that an order which was submitted before stands at: its task's last one; 0 when there is none.
func (d *Dispatcher) accepted(ctx context.Context, id subject.TaskID, digest string) (seq uint64, err error) {
	log, err := d.client.Task(ctx, id)
	if err != nil {
		return 0, err
	}
	if first, ok := request(log); ok {
		if x := first.Custom.Chiffon; x != nil && x.Digest == digest {
			return log[len(log)-1].Seq, nil
		}
	}
	return 0, nil
}
