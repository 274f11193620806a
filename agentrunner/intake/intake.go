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

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/spool"
	"chiffon/agentrunner/work"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
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

	// Pull is how long one request for work stands at the broker. Default 30 s.
	Pull time.Duration

	// Dir is where attempts have their directories; made when missing. What earlier lives have left there is removed.
	Dir string

	// Silence is how often an attempt gives a sign of life. Default 10 s.
	Silence time.Duration

	// Mend is how often a runner that cannot write its spool tries to, at first. Default 5 s.
	Mend time.Duration

	// Changed is called when State says something new that is not the orchestrator's doing. Nil means never.
	Changed func()

	Log *slog.Logger
}

// An Intake runs the attempts of one agent. Its methods may be called from several goroutines.
type Intake struct {
	cfg     Config
	changed chan struct{} // there may be something to pull, where there was not
	broken  chan struct{} // there is a defect, where there was none
	unshown seldom        // to say that a log cannot be read

	mu       sync.Mutex
	slots    map[subject.TaskID]*slot
	control  message.HeartbeatReply // the latest
	told     int                    // how many there were
	draining bool
	defect   defect

	attempts sync.WaitGroup
}

// New makes an intake. It holds what earlier lives have left in the spool, so that the first heartbeat lists it.
// The error says why Dir cannot be used.
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
	i := &Intake{cfg: cfg, changed: make(chan struct{}, 1), broken: make(chan struct{}, 1), slots: map[subject.TaskID]*slot{}}
	records, err := cfg.Spool.Records()
	if err != nil {
		// What cannot be read cannot be reported either; the orchestrator sees that this life does not list it.
		cfg.Log.Error("left in the spool", "error", err)
	}
	for _, r := range records {
		s := i.newSlot(r)
		s.recovered, s.started = true, r.Started
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
	running, stop := context.WithCancelCause(log)
	defer stop(nil)
	for _, s := range i.held() {
		i.attempts.Go(func() { i.settle(log, s) })
	}
	mended := make(chan struct{})
	go func() {
		defer close(mended)
		i.mend(ctx)
	}()
	i.pull(ctx, contexts{log: log, work: running})
	<-mended

	i.mu.Lock()
	i.draining = true
	i.mu.Unlock()
	done := make(chan struct{})
	go func() {
		i.attempts.Wait()
		close(done)
	}()
	drain := i.cfg.Drain
	if errors.Is(context.Cause(ctx), ErrAtOnce) {
		drain = 0
	}
	if n := len(i.held()); n > 0 {
		i.cfg.Log.Info("waiting for running work", "tasks", n, "at_most", drain.String())
	}
	if within(done, drain) {
		return nil
	}
	stop(&work.Stop{
		Reason: "the runner stops", Grace: child.DefaultGrace, // no longer, whatever a work type wants: we are to be gone
		Fault: fault.New(fault.AgentUnavailable, "agent %s was stopped while the work ran", i.cfg.Agent).
			With("agent_id", string(i.cfg.Agent)).With("last_heartbeat", time.Now().UTC().Format(time.RFC3339)),
	})
	if !within(done, i.cfg.Report) {
		for _, s := range i.held() {
			s.log.Warn("outcome is kept for the next start")
		}
		endLog()
		<-done
	}
	return nil
}

// contexts are the two lives of an attempt: its work may be stopped while the log is still told of it.
type contexts struct{ log, work context.Context }

func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
	}
	return false
}

// Control takes what the orchestrator says in answer to a heartbeat.
func (i *Intake) Control(r message.HeartbeatReply) {
	i.mu.Lock()
	i.control = r
	i.told++
	for _, id := range r.Cancel {
		if s := i.slots[id]; s != nil {
			s.lookNow()
		}
	}
	i.mu.Unlock()
	i.wake()
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
	if i.draining || i.defect.detail != "" || i.control.Drain || i.control.StopAll || i.control.PausedUntil != nil {
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
