// Package server is the orchestrator as a running thing: its settings and its wiring, read from top to bottom. It does
// no work of its own.
package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/settings"
)

// Config is what an operator sets, by environment variables that begin with ORCHESTRATOR_.
type Config struct {
	State        string        `envconfig:"STATE" desc:"Directory for the broker's store and the credential; one orchestrator at a time uses it"`
	Listen       string        `envconfig:"LISTEN" default:"127.0.0.1:8422" desc:"Address of the HTTP API, a loopback one"`
	BrokerListen string        `envconfig:"BROKER_LISTEN" default:"127.0.0.1:4222" desc:"Address of the embedded broker, a loopback one"`
	NATSURL      string        `envconfig:"NATS_URL" whole:"true" desc:"An existing NATS server (2.12 or newer) instead of the embedded broker"`
	Durability   string        `envconfig:"DURABILITY" default:"sync" desc:"sync: every message is on disk before it is acknowledged; relaxed: at most 100 ms later"`
	Replicas     int           `envconfig:"REPLICAS" default:"1" desc:"Copies of each stream in a NATS cluster"`
	KeepTasks    time.Duration `envconfig:"KEEP_TASKS" default:"720h" desc:"How long ended tasks are kept"`
	Lease        time.Duration `envconfig:"LEASE" default:"30s" desc:"How long a runner may go without reading that it still holds its task"`
	LostAfter    time.Duration `envconfig:"LOST_AFTER" default:"24h" desc:"How long work that may not be repeated may be out of reach before it ends with an error"`
	MaxQueued    int           `envconfig:"MAX_QUEUED" default:"1000000" desc:"How many tasks may wait for agents of one type"`
	MaxPerOne    int           `envconfig:"MAX_QUEUED_PER_SUBMITTER" default:"100000" desc:"How many tasks of one submitter may wait"`
	LogLevel     slog.Level    `envconfig:"LOG_LEVEL" default:"info" desc:"debug, info, warn or error"`

	// AcceptLoss goes on with what the broker holds, its own or another, although it held more. No setting: nobody is to
	// wish that for good.
	AcceptLoss bool
}

// FromEnvironment reads the settings; the error names every mistake.
func FromEnvironment() (Config, error) {
	var c Config
	// What the command line reads of the same prefix is no mistake here.
	err := settings.Read("ORCHESTRATOR", &c, "ORCHESTRATOR_URL", "ORCHESTRATOR_TOKEN_FILE")
	return c, err
}

func (c Config) check() error {
	switch c.Durability {
	case "sync", "relaxed", "":
	default:
		return fmt.Errorf("ORCHESTRATOR_DURABILITY is %q: it is sync or relaxed", c.Durability)
	}
	if c.Lease < 0 || c.Lease > 0 && c.Lease < time.Second {
		return fmt.Errorf("ORCHESTRATOR_LEASE is %s: it is at least 1s", c.Lease)
	}
	if c.MaxQueued < 0 || c.MaxPerOne < 0 {
		return fmt.Errorf("ORCHESTRATOR_MAX_QUEUED is %d, ORCHESTRATOR_MAX_QUEUED_PER_SUBMITTER %d: each is at least 1", c.MaxQueued, c.MaxPerOne)
	}
	if err := loopback("ORCHESTRATOR_LISTEN", c.Listen); err != nil {
		return err
	}
	for u := range strings.SplitSeq(c.NATSURL, ",") {
		if u == "" {
			continue
		}
		if err := broker.CheckLoopback(u); err != nil {
			return fmt.Errorf("NATS_URL: %w", err)
		}
	}
	return nil
}

func loopback(setting, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s is %q: it is host:port", setting, addr)
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s is %s: without TLS it listens on loopback addresses only (127.0.0.1, [::1])", setting, addr)
}

func base(addr net.Addr) string { return (&url.URL{Scheme: "http", Host: addr.String()}).String() }
