package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
)

// leaderKey is where the leader says, five times in Config.LeaderQuiet, that it leads; who has not heard it for that
// long takes its place. Two leaders for a moment harm nobody: all they do are conditional appends.
const leaderKey = "leader"

// lead leads whenever nobody else does, until ctx ends, and then lets go.
func (d *Dispatcher) lead(ctx context.Context) error {
	kv, err := d.client.Bucket(ctx, broker.StateBucket)
	if err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	defer d.leads.Store(false)
	tick := time.NewTicker(d.cfg.LeaderQuiet / 5)
	defer tick.Stop()
	c := candidate{kv: kv, name: d.cfg.Name, quiet: d.cfg.LeaderQuiet, changed: time.Now()}
	for {
		was := d.leads.Load()
		if now := c.try(ctx, time.Now()); now != was {
			d.leads.Store(now)
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
	revision uint64    // of the leader's word as it was read last
	changed  time.Time // when that revision was first seen, by this process's own clock
	mine     bool
	said     time.Time // when its own word was stored last
}

// try says that it leads, if it does or may, and reports whether it does.
func (c *candidate) try(ctx context.Context, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, c.quiet-c.quiet/5)
	defer cancel()
	if !c.mine {
		e, err := c.kv.Get(ctx, leaderKey)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			c.revision = 0
		case err != nil:
			return false
		case string(e.Value()) == c.name:
			c.revision = e.Revision() // its own word, which it did not know to be stored
		case e.Revision() != c.revision:
			c.revision, c.changed = e.Revision(), now
			return false
		case now.Sub(c.changed) < c.quiet:
			return false
		}
	}
	rev, err := c.say(ctx)
	switch {
	case err == nil:
		c.revision, c.mine, c.said = rev, true, now
	case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		c.mine, c.revision, c.changed = false, 0, now // somebody else has said so, as the next look will show
	default:
		c.mine = c.mine && now.Sub(c.said) < c.quiet
	}
	return c.mine
}

func (c *candidate) say(ctx context.Context) (uint64, error) {
	if c.revision == 0 {
		return c.kv.Create(ctx, leaderKey, []byte(c.name))
	}
	return c.kv.Update(ctx, leaderKey, []byte(c.name), c.revision)
}

// letGo lets another lead at once. Where that fails its word grows old by itself.
func (c *candidate) letGo() {
	if !c.mine {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if e, err := c.kv.Get(ctx, leaderKey); err == nil && string(e.Value()) == c.name {
		_ = c.kv.Delete(ctx, leaderKey, jetstream.LastRevision(e.Revision()))
	}
}
