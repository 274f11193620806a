package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"chiffon/orchestrator/api"
	"chiffon/orchestrator/breaker"
	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/gateway"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/broker"
	"chiffon/pkg/build"
	"chiffon/pkg/message"
	"chiffon/pkg/settings"
)

// A Server is an orchestrator that has everything it needs and waits for Run.
type Server struct {
	cfg      Config
	log      *slog.Logger
	state    string
	embedded *broker.Server // nil with a broker of somebody else's
	client   *broker.Client
	witness  *broker.Witness // nil with a broker of its own
	listener net.Listener
	views    *ledger.Ledger
	agents   *registry.Registry
	dispatch *dispatch.Dispatcher
	breakers *breaker.Set
	gate     *gate.Gate
	way      *breaker.Way
	told     balancer
	gateway  *gateway.Gateway
	http     *http.Server
	stopping chan struct{}
	undo     []func() // what Close does, last first
}

// Open takes the state directory, starts or finds the broker, makes what is missing there and listens. Close ends what
// it has begun; after an error everything is ended already.
func Open(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:8422")
	cfg.BrokerListen = cmp.Or(cfg.BrokerListen, "127.0.0.1:4222")
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: log, stopping: make(chan struct{})}
	if err := s.open(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) (err error) {
	if s.state, err = settings.StateDir(s.cfg.State, "orchestrator"); err != nil {
		return err
	}
	release, err := lock(s.state)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, release)
	if err := s.listen(); err != nil {
		return err
	}
	limits, err := s.connect()
	if err != nil {
		return err
	}
	if err := s.ensure(ctx, limits); err != nil {
		return err
	}
	return s.wire(ctx)
}

func (s *Server) listen() (err error) {
	if s.listener, err = net.Listen("tcp", s.cfg.Listen); err != nil {
		return fmt.Errorf("listen for HTTP: %w: does another program listen there? ORCHESTRATOR_LISTEN chooses another address", err)
	}
	s.undo = append(s.undo, func() { _ = s.listener.Close() }) // closed by the HTTP server as a rule
	return nil
}

// connect reaches the broker, its own or another.
func (s *Server) connect() (limits broker.Limits, err error) {
	limits = broker.DefaultLimits
	if s.cfg.NATSURL == "" {
		s.embedded, err = broker.Start(broker.ServerConfig{
			Dir: filepath.Join(s.state, "broker"), Listen: s.cfg.BrokerListen,
			Relaxed: s.cfg.Durability == "relaxed", AcceptLoss: s.cfg.AcceptLoss, Log: s.log,
		})
		if errors.Is(err, broker.ErrStoreDamaged) {
			return limits, fmt.Errorf("%w\n  restore a backup into an empty state directory (\"orchestrator restore FILE\"; docs/backup.md), or go on with what is there: \"orchestrator up --accept-loss\", once", err)
		}
		if errors.Is(err, broker.ErrStoreLocked) {
			return limits, fmt.Errorf("%w (ORCHESTRATOR_STATE)", err)
		}
		if err != nil {
			return limits, fmt.Errorf("%w (ORCHESTRATOR_BROKER_LISTEN chooses its address, NATS_URL a broker that is there already)", err)
		}
		s.undo = append(s.undo, s.embedded.Stop)
		limits = broker.LimitsFor(s.embedded.StoreCapacity())
	}
	s.client, err = broker.Connect(broker.Config{URL: s.cfg.NATSURL, Embedded: s.embedded, Name: "orchestrator", Log: s.log})
	if err != nil {
		return limits, err
	}
	s.undo = append(s.undo, s.client.Close)
	return limits, nil
}

func (s *Server) wire(ctx context.Context) error {
	tok, err := credential(s.state, s.URL())
	if err != nil {
		return err
	}
	kv, err := s.client.Bucket(ctx, broker.AgentsBucket)
	if err != nil {
		return err
	}
	lease := cmp.Or(s.cfg.Lease, 30*time.Second)
	if s.agents, err = registry.Open(ctx, kv, lease, s.log); err != nil {
		return err
	}
	s.views = ledger.New(s.client, s.log)
	if s.breakers, err = breaker.Open(ctx, breaker.Config{
		Client: s.client, Agents: s.agents, Ledger: s.views, Log: s.log, Leads: func() bool { return s.dispatch.Leading() },
	}); err != nil {
		return err
	}
	if s.gate, err = gate.Open(ctx, gate.Config{Client: s.client, Agents: s.agents, Breakers: s.breakers, Log: s.log}); err != nil {
		return err
	}
	s.dispatch = dispatch.New(dispatch.Config{
		Lease: lease, Keep: s.cfg.KeepTasks, LostAfter: s.cfg.LostAfter, Name: name(), Room: s.room(), Shut: s.gate.Shut,
		MaxQueued: s.cfg.MaxQueued, MaxQueuedPerSubmitter: s.cfg.MaxPerOne,
	}, s.client, s.views, s.agents, s.log)
	s.way = breaker.NewWay(s.client, s.log)
	s.gateway = gateway.New(s.client, s.agents, s.dispatch, s.gate, s.log)
	s.http = &http.Server{
		Handler: api.New(api.Config{
			Client: s.client, Ledger: s.views, Agents: s.agents, Dispatcher: s.dispatch, Gate: s.gate, Breakers: s.breakers,
			Way: s.way, ReadOnly: s.readOnly, Told: s.told.note,
			TokenHash: tok.Hash(), Release: build.Version(), Checks: s.checks, Stopping: s.stopping,
		}),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return nil
}

func name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "/" + string(message.NewUUID())
}

// URL is where the HTTP API is.
func (s *Server) URL() string { return base(s.listener.Addr()) }

// BrokerURL is where agents find the broker.
func (s *Server) BrokerURL() string {
	if s.embedded != nil {
		return s.embedded.URL()
	}
	return s.cfg.NATSURL
}

// State is the state directory, with the credential in it.
func (s *Server) State() string { return s.state }

// stopTime is how long requests that are under way may take when the server stops.
const stopTime = 5 * time.Second

// Run serves until ctx ends or something fails, and returns when all it started has ended. The order of stopping: it is
// not ready any more, no new requests, the rest; Close then lets the broker go.
func (s *Server) Run(ctx context.Context) error {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, part := range []func(context.Context) error{
		s.views.Run, s.agents.Run, s.breakers.Run, s.gate.Run, s.way.Run, s.dispatch.Run, s.gateway.Run, s.serve, s.keepStore, s.remember,
	} {
		wg.Go(func() {
			if err := part(inner); err != nil {
				cancel(err)
			}
		})
	}
	s.log.Info("orchestrator is up", "http", s.URL(), "broker", s.BrokerURL(), "state", s.state, "version", build.Version())
	select {
	case <-ctx.Done():
	case <-inner.Done():
	}
	close(s.stopping)
	s.told.wait(inner)
	s.shutdown()
	cancel(nil)
	wg.Wait()
	if err := context.Cause(inner); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (s *Server) serve(context.Context) error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("HTTP: %w", err)
	}
	return nil
}

func (s *Server) shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // cuts off who does not end
	}
}

// Close lets go of everything that Open took, last first.
func (s *Server) Close() {
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
	s.undo = nil
}
