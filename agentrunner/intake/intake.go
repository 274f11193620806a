// Package intake takes requests, holds each attempt's lease and sees it to its end in the task log. It follows
// docs/tasklog.md, "The runner", step by step, and does not know how work is done or which agents there are.
package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"chiffon/agentrunner/host"
	"chiffon/agentrunner/spool"
	"chiffon/agentrunner/work"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// ErrAtOnce, as the cause of Run's context, leaves running work no time to finish: another process is this agent now.
var ErrAtOnce = errors.New("another process is this agent now")

// Config says who takes work, and how. The zero value of a duration means its default.
type Config struct {
	Broker *broker.Client
	Spool  *spool.Spool
	Agent  subject.AgentID
	Type   subject.AgentType
	Host   string

	// Slots is how many attempts run at once. At least 1.
	Slots int

	// Work tells what is offered now; it may change from call to call.
	Work func() *work.Catalogue

	// Lease is how long a read of the log entitles to go on with work that may be repeated; the orchestrator may
	// shorten it. Default 30 s.
	Lease time.Duration

	// KillGrace is how long before the end of a lease such work is killed. Default 5 s, at most a quarter of the lease.
	KillGrace time.Duration

	// Drain is how long running work may go on after a stop, and Report how long it may then take to stop it and to
	// tell the log. What is not told by then stays in the spool. Defaults 60 s and 20 s.
	Drain, Report time.Duration

	// Now, when it is closed, ends a drain at once: running work gets a short grace, and what is not told soon stays in
	// the spool. Nil means never.
	Now <-chan struct{}

	// Room tells what the host has for work now. Nil means more than anybody asks for.
	Room func(context.Context) host.Room

	// Pull is how long one request for work stands at the broker. Default 30 s.
	Pull time.Duration

	// Dir is where attempts have their directories; made when missing. What earlier lives have left there is removed.
	Dir string

	// Silence is how often an attempt gives a sign of life. Default 10 s.
	Silence time.Duration

	// Mend is how often a runner that cannot write its spool tries to, at first. Default 5 s.
	Mend time.Duration

	// Changed is called when State says something new. Nil means never.
	Changed func()

	Log *slog.Logger
}

// An Intake runs the attempts of one agent. Its methods may be called from several goroutines.
type Intake struct {
	cfg     Config
	changed chan struct{} // there may be something to pull, where there was not
	broken  chan struct{} // there is a defect, where there was none
	unshown seldom        // to say that a log cannot be read
	junk    seldom        // to say that a message is no request

	mu       sync.Mutex
	slots    map[subject.TaskID]*slot
	control  message.HeartbeatReply // the latest
	told     int                    // how many there were
	draining bool                   // for good: this runner ends
	until    *time.Timer            // the end of a drain that the orchestrator wants
	defect   defect
	refused  map[subject.TaskID]refusal

	attempts sync.WaitGroup
}

// New makes an intake. It holds what earlier lives have left in the spool, so that the first heartbeat lists it.
// The error says why Dir cannot be used, or that a newer version has left something there.
func New(cfg Config) (*Intake, error) {
	def := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	def(&cfg.Lease, 30*time.Second)
	def(&cfg.KillGrace, 5*time.Second)
	def(&cfg.Drain, 60*time.Second)
	def(&cfg.Report, 20*time.Second)
	def(&cfg.Pull, 30*time.Second)
	def(&cfg.Mend, 5*time.Second)
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	cfg.Slots = max(cfg.Slots, 1)
	i := &Intake{cfg: cfg, changed: make(chan struct{}, 1), broken: make(chan struct{}, 1), slots: map[subject.TaskID]*slot{}, refused: map[subject.TaskID]refusal{}}
	records, err := cfg.Spool.Records()
	if errors.Is(err, spool.ErrNewer) { // nobody has heard of this life yet
		return nil, fmt.Errorf("%w: start that version, so that what it has in hand is told", err)
	}
	if err != nil {
		// What cannot be read cannot be reported either; the orchestrator sees that this life does not list it.
		cfg.Log.Error("left in the spool", "error", err)
	}
	for _, r := range records {
		s := i.newSlot(r)
		s.recovered, s.started = true, r.Started
		if !r.Begun || r.Allowed > 1 || r.Outcome != nil || r.Late != nil {
			s.memory, s.vram = 0, 0 // nothing of it runs
		}
		i.slots[r.Task] = s
	}
	return i, i.sweep()
}

// sweep removes directories of attempts that nobody knows of any more.
func (i *Intake) sweep() error {
	if err := os.MkdirAll(i.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("directory for work: %w", err)
	}
	entries, err := os.ReadDir(i.cfg.Dir)
	if err != nil {
		return fmt.Errorf("directory for work: %w", err)
	}
	for _, e := range entries {
		known := slices.ContainsFunc(i.held(), func(s *slot) bool { return strings.HasPrefix(e.Name(), string(s.task)) })
		if known {
			continue // work that outlived its runner may be in it
		}
		if err := os.RemoveAll(filepath.Join(i.cfg.Dir, e.Name())); err != nil {
			i.cfg.Log.Warn("directory of an earlier attempt stays", "error", err)
		}
	}
	return nil
}

// Run takes work until ctx ends, then lets what runs finish within Drain, stops the rest, and returns when every
// attempt is told to the log or left in the spool.
func (i *Intake) Run(ctx context.Context) error {
	log, endLog := context.WithCancel(context.WithoutCancel(ctx)) // for as long as outcomes are told
	defer endLog()
	defer context.AfterFunc(ctx, i.drain)()
	for _, s := range i.held() {
		i.attempts.Go(func() { i.settle(log, s) })
	}
	var mended sync.WaitGroup
	mended.Go(func() { i.mend(log) })
	i.pull(ctx, log)
	i.finish(ctx, endLog)
	endLog()
	mended.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.until != nil {
		i.until.Stop()
	}
	return nil
}

// Refresh looks for work again because what is offered has changed.
func (i *Intake) Refresh() { i.wake() }

func (i *Intake) wake() {
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

// Running lists the attempts in hand, also those of earlier lives that are not told yet.
func (i *Intake) Running() []message.Running {
	list := []message.Running{}
	for _, s := range i.held() {
		list = append(list, message.Running{TaskID: s.task, Attempt: s.attempt, Boot: s.boot})
	}
	return list
}

// State is what a heartbeat says of it: message.StateReady, StateDraining, or StateBroken with what is wrong.
func (i *Intake) State() (state, detail string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.draining || i.control.Drain:
		return message.StateDraining, i.defect.detail
	case i.defect.detail != "":
		return message.StateBroken, i.defect.detail
	}
	return message.StateReady, ""
}

// lease is how long one is now.
func (i *Intake) lease() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	if d := time.Duration(i.control.LeaseSeconds * float64(time.Second)); d > 0 {
		return min(d, i.cfg.Lease)
	}
	return i.cfg.Lease
}

// owner is the name under which what this agent's work leaves running is found.
func (i *Intake) owner() string { return string(i.cfg.Spool.Instance) }

func (i *Intake) held() []*slot {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := make([]*slot, 0, len(i.slots))
	for _, s := range i.slots {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *slot) int { return a.filled.Compare(b.filled) })
	return list
}

// free is how many more attempts may begin, and where requests for them are pulled from; 0 while none may.
func (i *Intake) free() (n int, consumers []string, told int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.barred() {
		return 0, nil, i.told
	}
	n = i.cfg.Slots
	for _, s := range i.slots {
		if !s.recovered { // what an earlier life has left needs no room
			n--
		}
	}
	return max(n, 0), i.control.Consumers, i.told
}

// barred says that no new work is to be taken now, whatever slots are free. With mu held.
func (i *Intake) barred() bool {
	c := i.control
	return i.draining || i.defect.detail != "" || c.Drain || c.StopAll || c.PausedUntil != nil
}
