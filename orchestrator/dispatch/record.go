package dispatch

import (
	"context"
	"time"

	"chiffon/orchestrator/ledger"
)

// Void entries are as many as anybody likes, and the record is never cleared: so many go on it in an hour, of one
// writer and in all. The log itself keeps every one of them as long as its task.
const (
	voidsOfOne = 100
	voidsInAll = 1000
)

// voidsKept is how long one that does not lead remembers void entries, for when it leads: shorter than the time in
// which the broker knows a record that it has already.
const voidsKept = time.Minute

// markEvery is how often the leader stores up to which status late outcomes are on record.
const markEvery = 30 * time.Second

// record puts on record, while this orchestrator leads, what has no place in a task's state: outcomes that came too late,
// and entries that do not count.
func (d *Dispatcher) record(ctx context.Context) error {
	tick := time.NewTicker(d.cfg.Sweep)
	defer tick.Stop()
	r := recorder{d: d}
	for {
		r.look(ctx, time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// A recorder is the leader's hand. Its zero value with a dispatcher does not lead.
type recorder struct {
	d       *Dispatcher
	leading bool
	limit   limit
	marked  uint64
	at      time.Time // when it was marked
}

func (r *recorder) look(ctx context.Context, now time.Time) {
	d := r.d
	if loading, _, _ := d.ledger.Loading(); loading || !d.leads.Load() {
		r.leading = false
		d.ledger.ForgetVoid(now.Add(-voidsKept))
		return
	}
	if !r.leading {
		// Who has led before has put some of it there.
		if err := d.ledger.ReadRecord(ctx); err != nil {
			d.log.Warn("record is not read", "error", err)
			return
		}
		r.leading = true
	}
	upTo := d.ledger.StatusSeq() // before the look at what is odd in them
	for _, o := range d.ledger.Odd() {
		if o.Kind == ledger.OddVoid {
			omitted, ok := r.limit.allow(o.Writer, now)
			if !ok {
				d.ledger.OnRecord(o.ID)
				continue
			}
			o.Omitted = omitted
		}
		if err := d.client.AuditOnce(ctx, o.Kind, o.ID, o); err != nil {
			d.log.Warn("odd thing is not put on record", "kind", o.Kind, "task_id", o.Task, "error", err)
			return
		}
		d.log.Info("odd thing is on record", "kind", o.Kind, "task_id", o.Task, "writer", o.Writer, "outcome", o.Outcome, "why", o.Why)
		d.ledger.OnRecord(o.ID)
	}
	if upTo == r.marked || now.Sub(r.at) < markEvery {
		return
	}
	if err := d.ledger.Mark(ctx, upTo); err != nil {
		d.log.Warn("record is not marked", "error", err)
		return
	}
	r.marked, r.at = upTo, now
}

// A limit counts void entries of an hour. Its zero value has counted none.
type limit struct {
	since   time.Time
	all     int
	of      map[string]int
	omitted int
}

// allow reports whether one more of a writer goes on record, and how many before it did not.
func (l *limit) allow(writer string, now time.Time) (omitted int, ok bool) {
	if now.Sub(l.since) >= time.Hour {
		l.since, l.all, l.of = now, 0, map[string]int{}
	}
	if l.all >= voidsInAll || l.of[writer] >= voidsOfOne {
		l.omitted++
		return 0, false
	}
	l.all++
	l.of[writer]++
	omitted, l.omitted = l.omitted, 0
	return omitted, true
}
