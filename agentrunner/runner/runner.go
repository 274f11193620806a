package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/host"
	"chiffon/agentrunner/intake"
	"chiffon/agentrunner/presence"
	"chiffon/agentrunner/spool"
	"chiffon/agentrunner/work"
	"chiffon/pkg/broker"
	"chiffon/pkg/build"
	"chiffon/pkg/message"
	"chiffon/pkg/settings"
)

// Run is the agentrunner: it takes work and does it until ctx ends, then lets running work finish within cfg.Drain.
// Nil means drained. A *presence.RefusedError or *presence.ReplacedError says that this agent must not go on; any other
// error is one of configuration.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	if err := cfg.complete(); err != nil {
		return fmt.Errorf("settings:\n%w", err)
	}
	log = log.With("agent_id", cfg.ID)
	dir, err := settings.StateDir(cfg.State, "agentrunner")
	if err != nil {
		return err
	}
	state, err := spool.Open(dir)
	if err != nil {
		return err
	}
	defer state.Close()

	switch err := sweep(ctx, state, log); {
	case err != nil && ctx.Err() != nil:
		return nil // told to stop before it was up: the next life sees to what is still ending
	case err != nil:
		return err
	}

	var types types
	types.load(cfg.Work(), log)

	client, err := connect(ctx, cfg, log)
	if err != nil || client == nil {
		return err
	}
	defer client.Close()

	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // a heartbeat is about to be sent
		}
	}
	in, err := intake.New(intake.Config{
		Broker: client, Spool: state, Agent: cfg.ID, Type: cfg.Type, Host: cfg.Host, Slots: cfg.Slots,
		Work: types.now, Dir: filepath.Join(dir, "work"), Drain: cfg.Drain, Now: cfg.Now, Room: host.Now,
		Changed: tell, Log: log,
	})
	if err != nil {
		return err
	}
	log.Info("agentrunner is up", "agent_type", cfg.Type, "slots", cfg.Slots, "state", dir, "version", build.Version(), "control_groups", groups())

	// The heartbeats go on while running work is finished, so that nobody takes it away.
	shown, hide := context.WithCancel(context.WithoutCancel(ctx))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() {
		shows := cfg.presence(client, state, in, &types, log)
		shows.Changed = changed
		err := presence.Run(shown, shows)
		if err != nil {
			stop(fmt.Errorf("%w: %w", intake.ErrAtOnce, err))
		}
		ended <- err
	}()
	reloaded := make(chan struct{})
	go func() {
		defer close(reloaded)
		reload(ctx, cfg, func() {
			types.load(cfg.Work(), log)
			in.Refresh()
			tell()
		})
	}()
	err = in.Run(ctx)
	stop(nil)
	<-reloaded
	hide()
	if shownErr := <-ended; shownErr != nil {
		return shownErr
	}
	log.Info("agentrunner is drained")
	return err
}

func (c Config) presence(client *broker.Client, state *spool.Spool, in *intake.Intake, t *types, log *slog.Logger) presence.Config {
	return presence.Config{
		Broker: client, Every: c.Heartbeat, Log: log, Reply: in.Control, Offers: t.offers,
		Now: func(hb *message.Heartbeat) {
			hb.Running, hb.Refused = in.Running(), in.Refused()
			hb.State, hb.Detail = in.State()
		},
		Self: message.Heartbeat{
			AgentID: c.ID, AgentType: c.Type, Version: build.Version(), Host: c.Host, Instance: string(state.Instance),
			Boot: state.Boot, Capabilities: c.Capabilities, Labels: c.Labels, Slots: c.Slots,
		},
	}
}

// sweepTime is how long a start may take to end what an earlier life has left. Killing it takes no time; what cannot be
// killed is stuck in the kernel.
const sweepTime = 30 * time.Second

// sweep ends what an earlier life has left running, before anybody hears of this one: the orchestrator takes a new life
// for proof that nothing of the old one runs.
func sweep(ctx context.Context, state *spool.Spool, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	killed, err := child.Sweep(ctx, string(state.Instance), state.Keeps()...)
	if killed > 0 {
		log.Warn("processes of an earlier life were still running, and are killed", "processes", killed)
	}
	if err != nil {
		return fmt.Errorf("%w: end it by hand, or restart the host, before this agent is started again", err)
	}
	return nil
}

// groups is where the work gets control groups of its own, or why it gets none.
func groups() string {
	home, err := child.Home()
	if err != nil {
		return err.Error()
	}
	return home
}

// How the broker is waited for.
const (
	tryEvery    = time.Second
	remindEvery = 10 * time.Second
)

// connect reaches the broker. It waits for one that is not there yet, and says so; nil when ctx ended before.
func connect(ctx context.Context, cfg Config, log *slog.Logger) (*broker.Client, error) {
	var said time.Time
	for {
		client, err := broker.Connect(broker.Config{URL: cfg.NATSURL, Name: "agentrunner " + string(cfg.ID), Log: log})
		if err == nil {
			return client, nil
		}
		if time.Since(said) >= remindEvery {
			said = time.Now()
			log.Warn("waiting for the broker", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(tryEvery):
		}
	}
}

// reload reads the work types again when it is told to.
func reload(ctx context.Context, cfg Config, again func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-cfg.Reload:
			if !open {
				return
			}
			again()
		}
	}
}

// types are the work types as they were read last.
type types struct{ read atomic.Pointer[offered] }

type offered struct {
	*work.Catalogue
	offers []message.Offer
	digest string
}

func (t *types) load(cfg work.Config, log *slog.Logger) {
	c, problems := work.Load(cfg)
	for _, p := range problems {
		log.Error("work type is not offered", "file", p.File, "line", p.Line, "error", p.Message, "cure", p.Cure)
	}
	for _, w := range c.Types() {
		if w.Reason != "" {
			log.Debug("work type is not offered", "work_type", w.Name, "reason", w.Reason)
		}
	}
	t.read.Store(&offered{c, c.Offers(), c.Digest()})
	log.Info("work types are read", "offered", len(c.Offers()))
}

func (t *types) now() *work.Catalogue { return t.read.Load().Catalogue }

func (t *types) offers() ([]message.Offer, string) {
	o := t.read.Load()
	return o.offers, o.digest
}

// Refused reports whether Run ended because the agent must not go on.
func Refused(err error) bool {
	_, refused := errors.AsType[*presence.RefusedError](err)
	_, replaced := errors.AsType[*presence.ReplacedError](err)
	return refused || replaced
}
