// Package natstest is a real broker inside a test: nats-server with JetStream, in the process, in a directory of the
// test's own. It knows nothing of what is tested.
package natstest

import (
	"cmp"
	"log/slog"
	"testing"
	"time"

	"chiffon/pkg/broker"
)

// Run starts a broker that listens on no port, with every stream made, and returns a connection to it. Both end with
// the test.
func Run(t testing.TB) *broker.Client {
	t.Helper()
	_, c := Start(t, broker.ServerConfig{Dir: t.TempDir(), Relaxed: true})
	return c
}

// Start runs a broker as configured, with every stream made, and returns it with a connection. Both end with the
// test; a test may Stop the server earlier.
func Start(t testing.TB, cfg broker.ServerConfig) (*broker.Server, *broker.Client) {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = Log(t)
	}
	// A store syncs itself from a timer that nats-server starts before it has said where it stands: early enough, the
	// race detector sees that.
	cfg.SyncEvery = cmp.Or(cfg.SyncEvery, time.Minute)
	s, err := broker.Start(cfg)
	if err != nil {
		t.Fatalf("start the broker: %v", err)
	}
	t.Cleanup(s.Stop)
	c := Connect(t, broker.Config{Embedded: s, Log: cfg.Log, Name: t.Name()})
	limits := broker.LimitsFor(1 << 30)
	if err := c.Ensure(t.Context(), limits, 1); err != nil {
		t.Fatalf("make the streams: %v", err)
	}
	return s, c
}

// Connect makes one more connection, which ends with the test.
func Connect(t testing.TB, cfg broker.Config) *broker.Client {
	t.Helper()
	c, err := broker.Connect(cfg)
	if err != nil {
		t.Fatalf("connect to the broker: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// Log is a logger into the test's own output.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
