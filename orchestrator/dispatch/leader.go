package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
)

// The leader says so every second; who has not heard it say so for five, takes its place. Two leaders for a moment
// harm nobody: all they do are conditional appends.
const (
	leaderKey   = "leader"
	leaderSays  = time.Second
	leaderQuiet = 5 * time.Second
)

// lead leads whenever nobody else does, until ctx ends, and then lets go.
func (d *Dispatcher) lead(ctx context.Context) error {
	kv, err := d.client.Bucket(ctx, broker.StateBucket)
	if err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	defer d.leads.Store(false)
	tick := time.NewTicker(leaderSays)
	defer tick.Stop()
	c := candidate{kv: kv, name: d.cfg.Name, changed: time.Now()}
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
	revision uint64    // of the leader's word as it was read last
	changed  time.Time // when that revision was first seen, by this process's own clock
	mine     bool
	said     time.Time // when its own word was stored last
}

// try says that it leads, if it does or may, and reports whether it does.
func (c *candidate) try(ctx context.Context, now time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, leaderQuiet-leaderSays)
	defer cancel()
	if !c.mine {
		e, err := c.kv.Get(ctx, leaderKey)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			c.revision = 0
		case err != nil:
			return false
		case e.Revision() != c.revision:
			c.revision, c.changed = e.Revision(), now
			return false
		case now.Sub(c.changed) < leaderQuiet:
			return false
		}
	}
	rev, err := c.say(ctx)
	switch {
	case err == nil:
		c.revision, c.mine, c.said = rev, true, now
	case errors.Is(err, jetstream.ErrKeyExists):
		c.mine, c.changed = false, now // somebody else has said so
	default:
		c.mine = c.mine && now.Sub(c.said) < leaderQuiet
	}
	return c.mine
}

func (c *candidate) say(ctx context.Context) (uint64, error) {
	if c.revision == 0 {
		return c.kv.Create(ctx, leaderKey, []byte(c.name))
	}
	return c.kv.Update(ctx, leaderKey, []byte(c.name), c.revision)
}

// letGo lets another lead at once.
func (c *candidate) letGo() {
	if !c.mine {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.kv.Delete(ctx, leaderKey, jetstream.LastRevision(c.revision)) // else its word grows old by itself
}
