package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"chiffon/pkg/disk"
)

// MaxPayload is the largest message of the embedded broker: whole output of 1 MiB fits even when it is escaped.
const MaxPayload = 4 << 20

// ServerConfig is what the embedded broker needs.
type ServerConfig struct {
	// Dir holds its store; made when missing. One process at a time may use it.
	Dir string

	// Listen is the address for clients, a loopback one; "" listens nowhere (in-process clients only). Port 0 is
	// any free one.
	Listen string

	// Relaxed syncs the store every 100 ms instead of with every message: a power cut may cost that much.
	Relaxed bool

	// Log gets the server's warnings and errors. Default: nowhere.
	Log *slog.Logger
}

// A Server is a NATS server with JetStream in this process.
type Server struct {
	s    *server.Server
	lock *disk.Lock
	log  *bridge
}

// ErrStoreLocked comes back when another process uses the store. Starting a second server on it would lose
// acknowledged data without a word, so that never happens.
var ErrStoreLocked = errors.New("the store is in use by another process")

// Start runs the embedded broker. Stop ends it.
func Start(cfg ServerConfig) (*Server, error) {
	lock, err := lockStore(cfg.Dir)
	if err != nil {
		return nil, err
	}
	srv, err := start(cfg)
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	srv.lock = lock
	return srv, nil
}

func start(cfg ServerConfig) (*Server, error) {
	opts := &server.Options{
		ServerName:   "chiffon",
		JetStream:    true,
		StoreDir:     cfg.Dir,
		SyncAlways:   !cfg.Relaxed,
		SyncInterval: 100 * time.Millisecond,
		MaxPayload:   MaxPayload,
		MaxPending:   256 << 20,
		NoSigs:       true,
		DontListen:   cfg.Listen == "",
		// JetStream is off as soon as lame duck starts, so the duck is short.
		LameDuckDuration:    time.Second,
		LameDuckGracePeriod: 100 * time.Millisecond,
		JetStreamLimits:     server.JSLimitOpts{MaxBatchInflightPerStream: 1024, MaxBatchInflightTotal: 4096},
	}
	if cfg.Listen != "" {
		if err := listenOn(opts, cfg.Listen); err != nil {
			return nil, err
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded broker: %w", err)
	}
	srv := &Server{s: s, log: &bridge{log: cfg.Log}}
	if srv.log.log == nil {
		srv.log.log = slog.New(slog.DiscardHandler)
	}
	s.SetLoggerV2(srv.log, false, false, false)
	s.Start()
	for deadline := time.Now().Add(2 * time.Minute); !s.ReadyForConnections(50*time.Millisecond) || !s.JetStreamEnabled(); {
		fatal := srv.log.fatal.Load()
		if fatal == nil && time.Now().Before(deadline) && s.Running() {
			continue
		}
		s.Shutdown()
		if fatal == nil {
			return nil, fmt.Errorf("embedded broker in %s did not become ready in 2 minutes", cfg.Dir)
		}
		return nil, fmt.Errorf("embedded broker in %s: %s", cfg.Dir, *fatal)
	}
	if err := srv.complete(cfg.Dir); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, err
	}
	return srv, nil
}

// complete makes sure that the server has taken up every stream that its store holds. It passes over one that it
// cannot read with a warning, and an empty one would be made in its place.
func (s *Server) complete(dir string) error {
	info, err := s.s.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return fmt.Errorf("embedded broker in %s: %w", dir, err)
	}
	known := map[string]bool{}
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			known[stream.Name] = true
		}
	}
	folders, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*"))
	if err != nil {
		return fmt.Errorf("embedded broker in %s: %w", dir, err)
	}
	for _, folder := range folders {
		name := filepath.Base(folder)
		if known[name] || strings.HasPrefix(name, ".") { // a dot marks what was deleted
			continue
		}
		return fmt.Errorf("broker store %s: stream %s cannot be read (%s): put a backup in its place, or move %s away to go on without what it holds",
			dir, name, s.log.about(folder), folder)
	}
	return nil
}

// listenOn sets the address after it has made sure that it is a loopback one and free: the server itself would only
// log that it is not.
func listenOn(opts *server.Options, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("broker address %q: %w", addr, err)
	}
	ip := loopback(host)
	if ip == nil {
		return fmt.Errorf("broker address %s is not a loopback address: without TLS and accounts the embedded broker listens on 127.0.0.1 or [::1] only", addr)
	}
	opts.Host = ip.String()
	if opts.Port, err = strconv.Atoi(port); err != nil {
		return fmt.Errorf("broker address %q: port %q is no number", addr, port)
	}
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(opts.Host, port))
	if err != nil {
		return fmt.Errorf("broker address %s: %w", addr, err)
	}
	return l.Close()
}

// loopback reads the name of a loopback address; nil when it is none.
func loopback(host string) net.IP {
	ip := net.ParseIP(host)
	if host == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if ip == nil || !ip.IsLoopback() {
		return nil
	}
	return ip
}

// CheckLoopback says what is wrong with the URL of a broker that is not on this host: as long as the broker has no
// accounts and no TLS, nobody is to speak to one over a network. nil when nothing is.
func CheckLoopback(brokerURL string) error {
	u, err := url.Parse(brokerURL)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is no URL of a broker: nats://127.0.0.1:4222 is one", brokerURL)
	}
	if loopback(u.Hostname()) == nil {
		return fmt.Errorf("%s is not on a loopback address: without TLS and accounts only a broker on this host is used", u.Host)
	}
	return nil
}

// URL is where clients reach the server; "" when it does not listen.
func (s *Server) URL() string {
	if a := s.s.Addr(); a != nil {
		return "nats://" + a.String()
	}
	return ""
}

// Health is nil while the server says that it is well.
func (s *Server) Health() error {
	if h := s.s.Healthz(&server.HealthzOptions{}); h.Status != "ok" {
		return fmt.Errorf("broker is %s: %s", h.Status, h.Error)
	}
	return nil
}

// StoreCapacity is how many bytes its streams may take together.
func (s *Server) StoreCapacity() int64 {
	if cfg := s.s.JetStreamConfig(); cfg != nil {
		return cfg.MaxStore
	}
	return 0
}

// Stop ends the server: clients are told, everything acknowledged is on disk, the store is free again.
func (s *Server) Stop() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
	_ = s.lock.Release() // closing drops the lock; nothing was written
}

// lockStore takes the store's exclusive lock; it goes with the process.
func lockStore(dir string) (*disk.Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("broker store: %w", err)
	}
	l, err := disk.Take(dir)
	if locked, ok := errors.AsType[*disk.LockedError](err); ok {
		return nil, fmt.Errorf("broker store %s: %w (pid %s): stop it, or give this one another state directory", dir, ErrStoreLocked, locked.PID)
	}
	if err != nil {
		return nil, fmt.Errorf("broker store: %w", err)
	}
	return l, nil
}

// A bridge takes the server's log lines into ours. Its notices are for debugging here.
type bridge struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]

	mu       sync.Mutex
	warnings []string // the first ones
}

// about is what the server has said of something in its store.
func (b *bridge) about(path string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.warnings {
		if strings.Contains(w, path) || strings.Contains(w, strconv.Quote(filepath.Base(path))) {
			return strings.TrimSpace(w)
		}
	}
	return "the broker does not say why"
}

// Warnf keeps the warnings of the start: they say why a stream is missing.
func (b *bridge) Warnf(f string, v ...any) {
	text := fmt.Sprintf(f, v...)
	b.mu.Lock()
	if len(b.warnings) < 100 {
		b.warnings = append(b.warnings, text)
	}
	b.mu.Unlock()
	b.log.Warn("broker", "message", text)
}

func (b *bridge) Noticef(f string, v ...any) { b.log.Debug("broker", "message", fmt.Sprintf(f, v...)) }
func (b *bridge) Debugf(f string, v ...any)  { b.log.Debug("broker", "message", fmt.Sprintf(f, v...)) }
func (b *bridge) Tracef(f string, v ...any)  { b.log.Debug("broker", "message", fmt.Sprintf(f, v...)) }
func (b *bridge) Errorf(f string, v ...any)  { b.log.Error("broker", "message", fmt.Sprintf(f, v...)) }
func (b *bridge) Fatalf(f string, v ...any) {
	text := fmt.Sprintf(f, v...)
	b.fatal.CompareAndSwap(nil, &text)
	b.log.Error("broker", "message", text)
}
