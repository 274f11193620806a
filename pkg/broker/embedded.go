package broker

import (
	"cmp"
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

	// SyncEvery, with Relaxed, is another time between two syncs. Who needs none before the server stops takes a long
	// one. Default 100 ms.
	SyncEvery time.Duration

	// AcceptLoss goes on with what the store holds, although more was recorded beside it, with a warning for each
	// thing that is missing. Without it that is ErrStoreDamaged.
	AcceptLoss bool

	// Log gets the server's warnings and errors. Default: nowhere.
	Log *slog.Logger
}

// A Server is a NATS server with JetStream in this process. Safe for concurrent use.
type Server struct {
	cfg  ServerConfig
	lock *disk.Lock

	mu   sync.RWMutex // held for as long as the server is being exchanged
	s    *server.Server
	log  *bridge
	over bool // Stop was called

	mark *storeRecord
}

// ErrStoreLocked comes back when another process uses the store. Starting a second server on it would lose
// acknowledged data without a word, so that never happens.
var ErrStoreLocked = errors.New("the store is in use by another process")

// Start runs the embedded broker. Stop ends it.
//
// Beside the store, in a file with its name and ".json", stands what it held when that was looked at last. A store that
// holds less, or was written by a newer program, is not taken: ErrStoreDamaged. Nothing is served before that is known.
func Start(cfg ServerConfig) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	lock, err := lockStore(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, lock: lock}
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	s.mark.start(func() map[string]holding { return states(s.server()) })
	return s, nil
}

// begin holds the store against its record, before and after the server has taken it up.
func (s *Server) begin() (err error) {
	if s.mark, err = openRecord(s.cfg); err != nil {
		return err
	}
	if err := s.launch(); err != nil {
		return err
	}
	if err := s.mark.compare(states(s.s), s.log.corrupt()); err != nil {
		s.s.Shutdown()
		s.s.WaitForShutdown()
		return err
	}
	return nil
}

// launch starts a server on the store and waits until it can be used.
func (s *Server) launch() error {
	cfg := s.cfg
	room, err := RoomIn(cfg.Dir)
	if err != nil {
		return fmt.Errorf("broker store: %w", err)
	}
	opts := &server.Options{
		ServerName: "chiffon",
		JetStream:  true,
		StoreDir:   cfg.Dir,
		// The server's default is a part of what happens to be free now. On a disk that has filled since that is less than
		// the streams have set aside, and it would let none of them be brought up to date.
		JetStreamMaxStore: room.All / 4 * 3,

		SyncAlways: !cfg.Relaxed,
		MaxPayload: MaxPayload,
		MaxPending: 256 << 20,
		NoSigs:     true,
		DontListen: cfg.Listen == "",
		// JetStream is off as soon as lame duck starts, so the duck is short.
		LameDuckDuration:    time.Second,
		LameDuckGracePeriod: 100 * time.Millisecond,
		JetStreamLimits:     server.JSLimitOpts{MaxBatchInflightPerStream: 1024, MaxBatchInflightTotal: 4096},
	}
	opts.SyncInterval = time.Second // what is not synced with each message: the directories of new blocks
	if cfg.Relaxed {
		opts.SyncInterval = cmp.Or(cfg.SyncEvery, 100*time.Millisecond)
	}
	if cfg.Listen != "" {
		if err := listenOn(opts, cfg.Listen); err != nil {
			return err
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("embedded broker: %w", err)
	}
	log := &bridge{log: cfg.Log}
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	for deadline := time.Now().Add(2 * time.Minute); !srv.ReadyForConnections(50*time.Millisecond) || !srv.JetStreamEnabled(); {
		fatal := log.fatal.Load()
		if fatal == nil && time.Now().Before(deadline) && srv.Running() {
			continue
		}
		srv.Shutdown()
		if fatal == nil {
			return fmt.Errorf("embedded broker in %s did not become ready in 2 minutes", cfg.Dir)
		}
		return fmt.Errorf("embedded broker in %s: %s", cfg.Dir, *fatal)
	}
	if err := complete(srv, log, cfg.Dir); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return err
	}
	if a := srv.Addr(); a != nil {
		s.cfg.Listen = a.String() // whatever comes after it is found at the same address
	}
	s.s, s.log = srv, log
	return nil
}

// Restart ends the server and starts another on the same store and address. That is what a store needs that is frozen
// since it could not be written: everything acknowledged is there again, and it takes what comes. Clients come back by
// themselves. After an error nothing runs until Restart succeeds.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return errors.New("the embedded broker was stopped")
	}
	s.s.Shutdown()
	s.s.WaitForShutdown()
	return s.launch()
}

// InProcessConn makes a connection that needs no socket.
func (s *Server) InProcessConn() (net.Conn, error) { return s.server().InProcessConn() }

func (s *Server) server() *server.Server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.s
}

// complete makes sure that the server has taken up every stream that its store holds. It passes over one that it
// cannot read with a warning, and an empty one would be made in its place.
func complete(s *server.Server, log *bridge, dir string) error {
	info, err := s.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
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
		return fmt.Errorf("broker store %s: stream %s cannot be read (%s): restore a backup into an empty directory, or move %s away and accept the loss to go on without what it holds",
			dir, name, log.about(folder), folder)
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
	if a := s.server().Addr(); a != nil {
		return "nats://" + a.String()
	}
	return ""
}

// Health is nil while the server says that it is well.
func (s *Server) Health() error {
	if h := s.server().Healthz(&server.HealthzOptions{}); h.Status != "ok" {
		return fmt.Errorf("broker is %s: %s", h.Status, h.Error)
	}
	return nil
}

// Stop ends the server: clients are told, everything acknowledged is on disk, the store is free again.
func (s *Server) Stop() {
	s.mark.halt()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	held := states(s.s)
	s.s.Shutdown()
	s.s.WaitForShutdown()
	s.mark.end(held)
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

// corrupt is what the server has said of messages that it cannot read, and leaves out from then on.
func (b *bridge) corrupt() (said []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.warnings {
		if strings.Contains(w, "corrupt record state") {
			said = append(said, strings.TrimSpace(w))
		}
	}
	return said
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
