package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
	"chiffon/pkg/build"
)

// leaderKey is where the leader says, five times in Config.LeaderQuiet, that it leads; who has not heard it for that
// long takes its place. Two leaders for a moment harm nobody: all they do are conditional appends.
const leaderKey = broker.LeaderKey

// wordVersion is that of what the leader says.
const wordVersion = 1

// A word is what the leader says. Who leads is told by its revision alone, so that an orchestrator of any version can
// follow, or replace, one of any other.
type word struct {
	V       int    `json:"v"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // of the program
}

// readWord reads what a leader has said. Before there were versions it said its name and nothing else.
func readWord(value []byte) word {
	var w word
	if err := json.Unmarshal(value, &w); err != nil || w.V == 0 {
		return word{Name: string(value)}
	}
	return w
}

// Leading reports whether this orchestrator leads, as far as it knows.
func (d *Dispatcher) Leading() bool { return d.leads.Load() }

// LeaderKnown reports whether some orchestrator, maybe this one, has lately been heard to lead.
func (d *Dispatcher) LeaderKnown(now time.Time) bool {
	heard := d.leader.Load()
	return heard != nil && now.Sub(*heard) < d.cfg.LeaderQuiet
}

// lead leads whenever nobody else does, until ctx ends, and then lets go.
func (d *Dispatcher) lead(ctx context.Context) error {
	defer d.leader.Store(nil)
	defer d.leads.Store(false)
	tick := time.NewTicker(d.cfg.LeaderQuiet / 5)
	defer tick.Stop()
	kv, err := d.client.Bucket(ctx, broker.StateBucket)
	for ; err != nil; kv, err = d.client.Bucket(ctx, broker.StateBucket) {
		if broker.Lost(err) || errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("lead: %w", err)
		}
		select { // the broker is away
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	c := candidate{kv: kv, name: d.cfg.Name, quiet: d.cfg.LeaderQuiet, changed: time.Now(), log: d.log}
	for {
		was := d.leads.Load()
		now := c.try(ctx, time.Now())
		d.leader.Store(new(c.heard))
		if d.leads.Store(now); now != was {
			d.log.Info("leadership", "leads", now)
		}
		select {
		case <-ctx.Done():
			c.letGo()
			return nil
		case <-tick.C:
		}
	}
}

// A candidate is one orchestrator's view of who leads.
type candidate struct {
	kv       jetstream.KeyValue
	name     string
	quiet    time.Duration
	log      *slog.Logger
	revision uint64    // of the leader's word as it was read last
	changed  time.Time // when that revision was first seen, by this process's own clock
	mine     bool
	said     time.Time // when its own word was stored last
	heard    time.Time // when somebody was last heard to lead: what was said before this process began is no sign
	newer    string    // a leader that speaks a version this one does not know, and was told of
}

// try says that it leads, if it does or may, and reports whether it does.
func (c *candidate) try(ctx context.Context, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, c.quiet-c.quiet/5)
	defer cancel()
	if !c.mine && !c.vacant(ctx, now) {
		return false
	}
	rev, err := c.say(ctx)
	switch {
	case err == nil:
		c.revision, c.mine, c.said, c.heard = rev, true, now, now
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		c.mine, c.revision, c.changed = false, 0, now // somebody else has said so, as the next look will show
	default:
		c.mine = c.mine && now.Sub(c.said) < c.quiet
	}
	return c.mine
}

// vacant reports whether nobody leads: nobody says so, or nobody has for too long, or it is its own word, which it did
// not know to be stored.
func (c *candidate) vacant(ctx context.Context, now time.Time) bool {
	e, err := c.kv.Get(ctx, leaderKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		c.revision, c.heard = 0, time.Time{}
		return true
	}
	if err != nil {
		return false
	}
	said := readWord(e.Value())
	if said.V > wordVersion && said.Name != c.newer {
		c.newer = said.Name
		c.log.Warn("leader is of a newer version: nothing that it says is read but that it leads", "leader", said.Name, "v", said.V)
	}
	switch {
	case said.Name == c.name:
		c.revision = e.Revision()
		return true
	case e.Revision() != c.revision:
		if c.revision != 0 {
			c.heard = now
		}
		c.revision, c.changed = e.Revision(), now
		return false
	}
	return now.Sub(c.changed) >= c.quiet
}

func (c *candidate) say(ctx context.Context) (uint64, error) {
	value, err := json.Marshal(word{V: wordVersion, Name: c.name, Version: build.Version()})
	if err != nil {
		return 0, err
	}
	if c.revision == 0 {
		return c.kv.Create(ctx, leaderKey, value)
	}
	return c.kv.Update(ctx, leaderKey, value, c.revision)
}

// letGo lets another lead at once. Where that fails its word grows old by itself.
func (c *candidate) letGo() {
	if !c.mine {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if e, err := c.kv.Get(ctx, leaderKey); err == nil && readWord(e.Value()).Name == c.name {
		_ = c.kv.Delete(ctx, leaderKey, jetstream.LastRevision(e.Revision()))
	}
}
