// Package breaker says whether an agent that fails again and again may get new work, and whether the broker can be
// asked at all. It does not know what work there is, nor what people have said of an agent.
package breaker

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"chiffon/orchestrator/view"
	"chiffon/pkg/subject"
)

// The limits of the protocol (docs/protocol.md, "Circuit breaker").
const (
	Failures = 5                // in a row open it
	Voids    = 3                // entries that do not count, none of them VoidTime after the one before, open it
	Cooldown = 60 * time.Second // how long it is open before the agent is asked for a sign of life
	VoidTime = time.Hour
)

// version is that of a stored record. One of a newer version is overwritten by nothing but a person's reset.
const version = 1

// A record is what is stored of one agent's breaker. The zero value is a closed one.
type record struct {
	Version  int             `json:"v"`
	Shared   json.RawMessage `json:"breaker,omitempty"` // gobreaker's own
	Failures int             `json:"failures,omitempty"`
	Reason   string          `json:"reason,omitempty"` // the latest failure
	Since    time.Time       `json:"since,omitzero"`   // it came into its state
	Voids    int             `json:"voids,omitempty"`
	VoidAt   time.Time       `json:"void_at,omitzero"`
	LostSeq  uint64          `json:"lost_seq,omitempty"` // the last entry of the task log that counted as a failed attempt
	Seq      uint64          `json:"seq,omitempty"`      // the last entry of the task log that was counted
}

// A cell is the store that gobreaker shares its state through, for the length of one step: a step is decided here, and
// stored by whoever wanted it.
type cell struct{ data []byte }

func (c *cell) Lock(string) error                   { return nil } // a step belongs to one goroutine
func (c *cell) Unlock(string) error                 { return nil }
func (c *cell) GetData(string) ([]byte, error)      { return c.data, nil }
func (c *cell) SetData(_ string, data []byte) error { c.data = data; return nil }

// shared is gobreaker's own state of it.
func (r record) shared() (s gobreaker.SharedState) {
	if len(r.Shared) > 0 && json.Unmarshal(r.Shared, &s) != nil {
		return gobreaker.SharedState{} // closed: who wrote that knows no better
	}
	return s
}

func (r record) open() bool { return r.shared().State != gobreaker.StateClosed }

// step has gobreaker take one outcome in: a nil do only looks at the time.
func (r record) step(cooldown time.Duration, do func() (struct{}, error)) record {
	was := r.shared()
	c := &cell{data: r.Shared}
	if len(was.Buckets) != 1 {
		c.data = nil // a new one, or nothing that gobreaker has written
	}
	// The only errors come from the store, which has none, and from what it is to take in.
	b, err := gobreaker.NewDistributedCircuitBreaker[struct{}](c, gobreaker.Settings{
		Timeout:     cooldown,
		MaxRequests: 1,
		ReadyToTrip: func(n gobreaker.Counts) bool {
			return n.ConsecutiveFailures >= Failures || r.Voids >= Voids
		},
	})
	if err != nil {
		return r
	}
	if do == nil {
		_, err = b.State()
	} else {
		_, err = b.Execute(do)
	}
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return r // it takes nothing in while it is open
	}
	r.Shared = c.data
	now := r.shared()
	switch {
	case now.State == gobreaker.StateClosed && was.State == gobreaker.StateClosed:
		r.Failures = int(now.Counts.ConsecutiveFailures)
	case now.State == gobreaker.StateClosed:
		r.Failures, r.Reason = 0, ""
	case now.State == gobreaker.StateOpen:
		r.Failures++
	}
	if now.State != was.State || now.Generation != was.Generation && now.State == gobreaker.StateOpen {
		r.Since = now.Start.UTC()
	}
	if now.State == gobreaker.StateOpen {
		r.Voids = 0 // they have had their effect
	}
	return r
}

// fail counts a failure.
func (r record) fail(cooldown time.Duration, reason string) record {
	if was := r.shared().State; was != gobreaker.StateOpen {
		r.Reason = reason
	}
	return r.step(cooldown, func() (struct{}, error) { return struct{}{}, errors.New(reason) })
}

// succeed counts a success: it ends a row of failures, and closes a half-open breaker.
func (r record) succeed(cooldown time.Duration) record {
	if !r.open() && r.Failures == 0 {
		return r // nothing to forget
	}
	r = r.step(cooldown, func() (struct{}, error) { return struct{}{}, nil })
	if !r.open() {
		r.Reason = ""
	}
	return r
}

// probe makes an open breaker half-open: the next outcome decides. It is for the caller to know that it is time, by
// a clock that nobody sets.
func (r record) probe(cooldown time.Duration) record {
	s := r.shared()
	if s.State != gobreaker.StateOpen {
		return r
	}
	if now := time.Now(); !s.Expiry.Before(now) {
		s.Expiry = now.Add(-1)
		r.Shared, _ = json.Marshal(s) // plain values
	}
	return r.step(cooldown, nil)
}

// A Fact is something that an agent did, or failed to do, as the task log tells it.
type Fact struct {
	Kind   Kind
	Reason string    // for people, of what is no success
	Seq    uint64    // of the entry that tells it
	Start  uint64    // of the entry that began the attempt, of a failure; 0 is before anything that is remembered
	At     time.Time // of that entry
}

// A Kind of fact.
type Kind int

// The kinds of facts.
const (
	Success Kind = iota + 1 // it has ended a task, in whatever way
	Failure                 // an attempt has failed with 5001 or 5002, was taken from it, or died with its runner
	Void                    // it has put an entry on a task's log that does not count
)

// count takes a fact in, once: facts come in the order of the log, and what was counted before is known by its place.
// A breaker that is not closed learns from its health check alone.
func (r record) count(cooldown time.Duration, f Fact) record {
	if f.Seq <= r.Seq {
		return r
	}
	r.Seq = f.Seq
	if r.open() {
		return r
	}
	switch f.Kind {
	case Success:
		return r.succeed(cooldown)
	case Failure:
		// What was in hand already when it failed before is the same failure: a runner that dies with five tasks
		// has failed once.
		if f.Start < r.LostSeq {
			return r
		}
		r.LostSeq = f.Seq
	case Void:
		if f.At.Sub(r.VoidAt) > VoidTime {
			r.Voids = 0
		}
		r.Voids, r.VoidAt = r.Voids+1, f.At
	}
	return r.fail(cooldown, f.Reason)
}

// same reports whether a record says nothing that another does not: its place in the log alone is not worth storing.
func (r record) same(o record) bool {
	return string(r.Shared) == string(o.Shared) && r.Failures == o.Failures && r.Reason == o.Reason && r.Voids == o.Voids &&
		r.VoidAt.Equal(o.VoidAt) && r.LostSeq == o.LostSeq && r.Since.Equal(o.Since)
}

// reset is the record of a closed breaker that has counted what this one has.
func (r record) reset(now time.Time) record {
	return record{Version: version, Seq: r.Seq, LostSeq: r.LostSeq, Since: now.UTC()}
}

// view is the breaker as people see it.
func (r record) view(id subject.AgentID) view.Breaker {
	v := view.Breaker{AgentID: string(id), State: r.shared().State.String(), Failures: r.Failures, Reason: r.Reason}
	if !r.Since.IsZero() {
		v.Since = new(r.Since)
	}
	if s := r.shared(); s.State == gobreaker.StateOpen {
		v.Until = new(s.Expiry.UTC())
	}
	return v
}
