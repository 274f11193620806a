package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/server"
	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/settings/settingstest"
)

var update = flag.Bool("update", false, "write docs/settings.md anew")

// here is a configuration that disturbs nobody.
func here(t *testing.T) server.Config {
	t.Helper()
	return server.Config{State: t.TempDir(), Listen: "127.0.0.1:0", BrokerListen: "127.0.0.1:0", Durability: "relaxed"}
}

// A running server, with the credential that it made.
type running struct {
	*server.Server
	testing.TB
	token string
	stop  func() error // ends it, and waits
}

func start(t *testing.T, cfg server.Config) *running {
	t.Helper()
	s, err := server.Open(t.Context(), cfg, natstest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Server: s, TB: t}
	var c struct{ URL, Token string }
	if err := json.Unmarshal(r.credential(), &c); err != nil || c.URL != s.URL() || len(c.Token) != 32 {
		t.Errorf("credential = %+v, %v, want the token for %s", c, err, s.URL())
	}
	r.token = c.Token
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stopped := false
	r.stop = func() (err error) {
		if !stopped {
			stopped = true
			cancel()
			err = <-done
			s.Close()
		}
		return err
	}
	t.Cleanup(func() { _ = r.stop() })
	return r
}

func (r *running) credential() []byte {
	r.Helper()
	path := filepath.Join(r.State(), "admin.json")
	data, err := os.ReadFile(path)
	if err != nil {
		r.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		r.Errorf("%s has mode %v, %v, want 0600", path, info.Mode(), err)
	}
	return data
}

func (r *running) do(method, path, body string) *http.Response {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.URL()+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// ready waits until readyz answers with a status.
func (r *running) ready(want int) {
	r.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		got := r.do(http.MethodGet, "/readyz", "").StatusCode
		if got == want {
			return
		}
		if time.Now().After(end) {
			r.Fatalf("readyz = %d, want %d", got, want)
		}
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	cfg := here(t)
	r := start(t, cfg)
	r.ready(http.StatusOK)
	res := r.do(http.MethodPost, "/v1/tasks", `{"agent_type": "infra", "work_type": "survey_host", "parameters": {}}`)
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("POST /v1/tasks = %s", res.Status)
	}
	place := res.Header.Get("Location")
	events := r.do(http.MethodGet, place+"/events?follow=true", "")
	lines := bufio.NewScanner(events.Body)
	if !lines.Scan() {
		t.Fatal("no event comes")
	}
	// A stop ends the stream of events, soon.
	began := time.Now()
	if err := r.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	for lines.Scan() { // to its end
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream of events breaks: %v", err)
	}

	// The next start knows the task, and the token is the same.
	again := start(t, cfg)
	if again.token != r.token {
		t.Error("a restart made another token")
	}
	again.ready(http.StatusOK)
	if res := again.do(http.MethodGet, place, ""); res.StatusCode != http.StatusOK {
		t.Errorf("GET %s after a restart = %s", place, res.Status)
	}
	if err := again.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
	left, err := filepath.Glob(filepath.Join(cfg.State, "*"))
	if err != nil || len(left) != 4 {
		t.Errorf("the state directory holds %v, want admin.json, broker, broker.json and lock", left)
	}
}

// taken is an address that somebody listens on.
func taken(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	occupied := start(t, here(t)).State()
	for name, c := range map[string]struct {
		change func(*server.Config)
		want   []string
	}{
		"a state directory in use":         {func(c *server.Config) { c.State = occupied }, []string{occupied, "another orchestrator", "ORCHESTRATOR_STATE"}},
		"a state directory that cannot be": {func(c *server.Config) { c.State = "/dev/null/x" }, []string{"/dev/null", "ORCHESTRATOR_STATE"}},
		"HTTP port taken":                  {func(c *server.Config) { c.Listen = taken(t) }, []string{"in use", "ORCHESTRATOR_LISTEN"}},
		"broker port taken":                {func(c *server.Config) { c.BrokerListen = taken(t) }, []string{"in use", "ORCHESTRATOR_BROKER_LISTEN"}},
		"HTTP for everybody":               {func(c *server.Config) { c.Listen = "0.0.0.0:0" }, []string{"ORCHESTRATOR_LISTEN", "loopback"}},
		"HTTP on all addresses":            {func(c *server.Config) { c.Listen = ":8422" }, []string{"ORCHESTRATOR_LISTEN", "loopback"}},
		"broker for everybody":             {func(c *server.Config) { c.BrokerListen = "[::]:0" }, []string{"ORCHESTRATOR_BROKER_LISTEN", "loopback"}},
		"a broker elsewhere":               {func(c *server.Config) { c.NATSURL = "nats://192.0.2.1:4222" }, []string{"NATS_URL", "192.0.2.1"}},
		"no broker there":                  {func(c *server.Config) { c.NATSURL = "nats://127.0.0.1:1" }, []string{"NATS_URL", "127.0.0.1:1"}},
		"durability":                       {func(c *server.Config) { c.Durability = "maybe" }, []string{"ORCHESTRATOR_DURABILITY", "relaxed"}},
		"lease":                            {func(c *server.Config) { c.Lease = time.Millisecond }, []string{"ORCHESTRATOR_LEASE", "1s"}},
		"no address":                       {func(c *server.Config) { c.Listen = "8422" }, []string{"ORCHESTRATOR_LISTEN", "host:port"}},
	} {
		cfg := here(t)
		c.change(&cfg)
		s, err := server.Open(t.Context(), cfg, natstest.Log(t))
		if err == nil {
			s.Close()
			t.Errorf("%s: Open = nil", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: Open = %q, want it to say %q", name, err, want)
			}
		}
		if cfg.State == occupied || strings.HasPrefix(cfg.State, "/dev") {
			continue
		}
		if _, err := os.Stat(filepath.Join(cfg.State, "admin.json")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a server that does not start leaves a credential", name)
		}
		// What was taken is free again.
		good := here(t)
		good.State = cfg.State
		if s, err := server.Open(t.Context(), good, natstest.Log(t)); err != nil {
			t.Errorf("%s: Open after the mistake is mended = %v", name, err)
		} else {
			s.Close()
		}
	}
}

func TestCredentialThatIsNone(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"no JSON": "hello", "no token": `{"url": "x"}`, "a short one": `{"token": "s3cret"}`} {
		cfg := here(t)
		if err := os.WriteFile(filepath.Join(cfg.State, "admin.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := server.Open(t.Context(), cfg, natstest.Log(t))
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "admin.json") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: Open = %v, want what is wrong with admin.json, without what it holds", name, err)
		}
	}
}

// An outage of somebody else's broker is told, work is not lost, and all goes on when it is back.
func TestBrokerOutage(t *testing.T) {
	t.Parallel()
	store := broker.ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Relaxed: true, SyncEvery: time.Minute, Log: natstest.Log(t)}
	b, err := broker.Start(store)
	if err != nil {
		t.Fatal(err)
	}
	cfg := here(t)
	cfg.NATSURL = b.URL()
	r := start(t, cfg)
	r.ready(http.StatusOK)
	place := r.do(http.MethodPost, "/v1/tasks", `{"agent_type": "infra", "work_type": "x", "parameters": {}}`).Header.Get("Location")
	b.Stop()
	r.ready(http.StatusServiceUnavailable)
	if res := r.do(http.MethodGet, "/healthz", ""); res.StatusCode != http.StatusOK {
		t.Errorf("healthz = %s while the broker is away: it lives", res.Status)
	}
	store.Listen = strings.TrimPrefix(cfg.NATSURL, "nats://")
	if b, err = broker.Start(store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	r.ready(http.StatusOK)
	if res := r.do(http.MethodGet, place, ""); res.StatusCode != http.StatusOK {
		t.Errorf("GET %s after the outage = %s", place, res.Status)
	}
	if err := r.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestChecks(t *testing.T) {
	t.Parallel()
	r := start(t, here(t))
	r.ready(http.StatusOK)
	var found struct {
		Version string
		Checks  []struct {
			Name, Detail, Cure string
			OK                 bool
		}
	}
	if err := json.NewDecoder(r.do(http.MethodGet, "/v1/checks", "").Body).Decode(&found); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, c := range found.Checks {
		names[c.Name] = c.OK
		if !c.OK && c.Cure == "" || c.Detail == "" {
			t.Errorf("check %+v says not what, or not what to do", c)
		}
	}
	for _, name := range []string{"broker", "durability", "stream CHIFFON_TASKS", "views"} {
		if !names[name] {
			t.Errorf("check %q is not well: %+v", name, found.Checks)
		}
	}
	if names["agents"] {
		t.Error("doctor is content without an agent")
	}
}

// docs/settings.md shows what is read, and nothing else.
func TestSettingsAreDocumented(t *testing.T) {
	settingstest.Document(t, "../../docs/settings.md", "orchestrator", new(server.Config), *update)
}
