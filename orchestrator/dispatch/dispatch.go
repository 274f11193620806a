// Package dispatch decides what becomes of a task: it submits, places, cancels, retries, and repairs what delivery
// cannot. All it does are conditional appends to the task log. It does not know how requests come in.
package dispatch

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/why"
	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/together"
)

// Config is what an operator sets. The zero value of a field means its default.
type Config struct {
	// Lease is how long a holder may go without reading that it still holds. Default 30 s.
	Lease time.Duration

	// Grace is how long it takes to kill a child for certain. Default 5 s.
	Grace time.Duration

	// Heartbeat is how often agents are heard. Default 5 s.
	Heartbeat time.Duration

	// LostAfter is how long work that may not be repeated, and has no max_duration_seconds, may be out of reach.
	// Default 24 h.
	LostAfter time.Duration

	// Keep is how long ended tasks are kept. Default 30 days.
	Keep time.Duration

	// KeepJunk is how long messages are kept that name a task which nobody has submitted. Default 1 h.
	KeepJunk time.Duration

	// Sweep is how often all open tasks are looked at. Default 5 s.
	Sweep time.Duration

	// LeaderQuiet is how long the leader may be unheard before another leads; it says five times as often that it
	// does. Default 5 s.
	LeaderQuiet time.Duration

	// Shut says whether, at a moment, an agent is to get no new work. nil: no agent is.
	Shut func(subject.AgentID, time.Time) gate.Shut

	// MaxQueued is how many tasks may wait for agents of one type, and MaxQueuedPerSubmitter how many of one submitter:
	// those that have not begun, or wait for their next attempt. Default 1,000,000 and 100,000.
	MaxQueued             int
	MaxQueuedPerSubmitter int

	// Name tells this orchestrator from others that wish to lead. Must be unique.
	Name string

	// Room says whether the broker can store what is new: nil, or an error that wraps ErrNoRoom. It is asked before
	// every submission. Default: there always is room.
	Room func() error
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Lease, 30*time.Second)
	def(&c.Grace, 5*time.Second)
	def(&c.Heartbeat, 5*time.Second)
	def(&c.LostAfter, 24*time.Hour)
	def(&c.Keep, 30*24*time.Hour)
	def(&c.KeepJunk, time.Hour)
	def(&c.Sweep, 5*time.Second)
	def(&c.LeaderQuiet, 5*time.Second)
	c.MaxQueued = cmp.Or(c.MaxQueued, 1_000_000)
	c.MaxQueuedPerSubmitter = cmp.Or(c.MaxQueuedPerSubmitter, 100_000)
	if c.Shut == nil {
		c.Shut = func(subject.AgentID, time.Time) gate.Shut { return gate.Shut{} }
	}
	if c.Room == nil {
		c.Room = func() error { return nil }
	}
	return c
}

// A Dispatcher decides. Safe for concurrent use; Run repairs.
type Dispatcher struct {
	cfg    Config
	client *broker.Client
	ledger *ledger.Ledger
	agents *registry.Registry
	log    *slog.Logger

	leads  atomic.Bool
	leader atomic.Pointer[time.Time] // when somebody was last heard to lead
	full   atomic.Bool               // the task log has no room for new tasks

	lapses lapses

	mu        sync.Mutex
	since     time.Time              // timers start no earlier: Run began, or was itself stopped for a while
	consumers map[string][]string    // durables that exist, by what they are for
	requeued  map[subject.TaskID]int // how often a request was put again without a start
}

// New returns a dispatcher that leads nothing until Run.
func New(cfg Config, client *broker.Client, views *ledger.Ledger, agents *registry.Registry, log *slog.Logger) *Dispatcher {
	return &Dispatcher{
		cfg: cfg.withDefaults(), client: client, ledger: views, agents: agents, log: log,
		consumers: map[string][]string{}, requeued: map[subject.TaskID]int{},
	}
}

// Lease is how long a holder may go without confirming.
func (d *Dispatcher) Lease() time.Duration { return d.cfg.Lease }

// Beside Config.Sweep the reconciler looks every lookEvery at what waits for a moment, and every pulseEvery at what
// somebody holds. A pause of stopped in its own ticks means that this process was stopped.
const (
	lookEvery  = 250 * time.Millisecond
	pulseEvery = time.Second
	stopped    = 5 * time.Second
)

// Run leads if nobody else does, and while it leads repairs what delivery cannot, until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) error {
	return together.Run(ctx, d.lead, d.reconcile, d.housekeep, d.record)
}

// restart makes all timers start anew.
func (d *Dispatcher) restart(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.since = now
}

func (d *Dispatcher) started() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.since
}

// world gathers what decisions rest on. Consumers and slots are asked for only when a decision needs them.
func (d *Dispatcher) world(now time.Time) *world {
	type progress struct{ delivered, acked uint64 }
	known := map[string]progress{}
	return &world{
		now: now, since: d.started(), lease: d.cfg.Lease, grace: d.cfg.Grace,
		silence: d.cfg.Lease + 2*d.cfg.Heartbeat, lostAfter: d.cfg.LostAfter,
		refusal: d.refusal(), agents: d.agents.Agents(now), shut: d.shutAt(now),
		listed: d.agents.Listed, coming: map[string]int{},
		busy: sync.OnceValue(d.ledger.Busy), placed: sync.OnceValue(d.ledger.Placed), ahead: map[ledger.Placing]int{},
		consumer: func(name string) (uint64, uint64) {
			p, ok := known[name]
			if !ok {
				var err error
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if p.delivered, p.acked, err = d.client.ConsumerState(ctx, name); err != nil {
					d.log.Warn("consumer is not read", "consumer", name, "error", err)
				}
				known[name] = p
			}
			return p.delivered, p.acked
		},
		lapsed: d.lapses.get, facts: sync.OnceValue(func() why.Facts { return d.Facts(now) }),
		requeued: func(id subject.TaskID) int {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.requeued[id]
		},
	}
}

// refusal is for how long an agent's word that it has refused a request may still be heard: it says so for a lease, and
// was heard last some heartbeats ago.
func (d *Dispatcher) refusal() time.Duration { return d.cfg.Lease + 2*d.cfg.Heartbeat }

// shutAt asks once for each agent, for one goroutine.
func (d *Dispatcher) shutAt(now time.Time) func(subject.AgentID) gate.Shut {
	known := map[subject.AgentID]gate.Shut{}
	return func(id subject.AgentID) gate.Shut {
		s, ok := known[id]
		if !ok {
			s = d.cfg.Shut(id, now)
			known[id] = s
		}
		return s
	}
}

// housekeep watches the log's room and removes tasks that ended long ago.
func (d *Dispatcher) housekeep(ctx context.Context) error {
	tick := time.NewTicker(d.cfg.Sweep)
	defer tick.Stop()
	for {
		d.measure(ctx)
		if loading, _, _ := d.ledger.Loading(); !loading {
			d.forget(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// measure notes whether the log has room for new tasks: nine tenths of it, for an end must always fit.
func (d *Dispatcher) measure(ctx context.Context) {
	if info, err := d.client.StreamInfo(ctx, subject.TasksStream); err == nil {
		limit := info.Config.MaxBytes
		d.full.Store(limit > 0 && info.State.Bytes > uint64(limit)/10*9)
	}
}

// some is how much is removed at a time.
const some = 1000

// sweepOut removes what was put under ids that no task has. Who does not lead drops it from memory once the leader has
// had the time to.
func (d *Dispatcher) sweepOut(ctx context.Context) {
	if !d.leads.Load() {
		for id, tail := range d.ledger.Junk(time.Now().Add(-2*d.cfg.KeepJunk), some) {
			d.ledger.ForgetJunk(id, tail)
		}
		return
	}
	for id, tail := range d.ledger.Junk(time.Now().Add(-d.cfg.KeepJunk), some) {
		if !d.ledger.IsJunk(id, tail) {
			continue // it is just being submitted
		}
		if err := d.client.PurgeTask(ctx, subject.TasksStream, id, tail); err != nil {
			d.log.Warn("void entries are not removed", "task_id", id, "error", err)
			return
		}
		d.ledger.ForgetJunk(id, tail)
	}
}

// forget drops what agents have said of tasks that are over. The leader also removes some tasks whose end is older than
// the retention; never one without an end.
func (d *Dispatcher) forget(ctx context.Context) {
	d.agents.Forget(func(id subject.TaskID) bool {
		t, ok := d.ledger.Get(id)
		return !ok || t.Ended()
	})
	d.sweepOut(ctx)
	if !d.leads.Load() {
		return
	}
	old := d.ledger.EndedBefore(time.Now().Add(-d.cfg.Keep), some)
	for i, id := range old {
		for _, stream := range []string{subject.StatusStream, subject.TasksStream} {
			if err := d.client.PurgeTask(ctx, stream, id, 0); err != nil {
				d.log.Warn("old task is not removed", "task_id", id, "error", err)
				d.ledger.Forget(old[:i]...)
				return
			}
		}
	}
	if len(old) > 0 {
		d.ledger.Forget(old...)
		d.log.Info("old tasks are removed", "tasks", len(old))
	}
}
