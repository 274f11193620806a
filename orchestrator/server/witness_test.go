package server_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"chiffon/orchestrator/backup"
	"chiffon/orchestrator/server"
	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

// A broker that does not say what it holds is asked again for a while. It is not taken for an empty one.
func TestRemoteThatDoesNotSay(t *testing.T) {
	t.Parallel()
	dumb := func(s *site) *natsserver.Server { // without JetStream
		s.b.Stop()
		srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: port(s.store.Listen), NoSigs: true, NoLog: true})
		if err != nil {
			s.Fatal(err)
		}
		srv.Start()
		s.Cleanup(srv.Shutdown)
		s.until("it listens", func() bool { return srv.ReadyForConnections(time.Second) })
		return srv
	}
	t.Run("for too long", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		dumb(s)
		if err := s.open(); err == nil || errors.Is(err, broker.ErrStoreDamaged) || !strings.Contains(err.Error(), "does not say what it holds") {
			t.Errorf("Open = %v", err)
		}
	})
	t.Run("for a moment", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		srv := dumb(s)
		opened := make(chan error, 1)
		go func() { opened <- s.open() }()
		s.until("it is asked", func() bool { return srv.NumClients() > 0 })
		srv.Shutdown()
		srv.WaitForShutdown()
		s.serve(s.store.Dir)
		if err := <-opened; err != nil {
			t.Error(err)
		}
	})
	t.Run("and the start is called off", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		srv := dumb(s)
		ctx, cancel := context.WithCancel(t.Context())
		opened := make(chan error, 1)
		go func() {
			o, err := server.Open(ctx, s.cfg, natstest.Log(t))
			if err == nil {
				o.Close()
			}
			opened <- err
		}()
		s.until("it is asked", func() bool { return srv.NumClients() > 0 })
		cancel()
		if err := <-opened; !errors.Is(err, context.Canceled) {
			t.Errorf("Open = %v", err)
		}
	})
}

func port(addr string) int {
	_, text, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(text)
	return n
}

// While it runs, the record follows the broker at a distance, is right after kill -9 of the broker, and does not follow
// it into a loss. Each orchestrator has its own.
func TestRemoteIsRecorded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startBroker(t, dir, "127.0.0.1:0")
	s, other := &site{T: t, cfg: here(t)}, &site{T: t, cfg: here(t)}
	s.cfg.NATSURL, other.cfg.NATSURL = b.url, b.url
	followed := func(s *site, r *running) {
		t.Helper()
		r.ready(http.StatusOK)
		r.do(http.MethodPost, "/v1/tasks", survey)
		was := s.recorded(subject.TasksStream)
		s.until("the task is recorded", func() bool { return s.recorded(subject.TasksStream) > was })
	}
	r := start(t, s.cfg)
	followed(s, r)
	b.kill()
	listen := strings.TrimPrefix(b.url, "nats://")
	b = startBroker(t, dir, listen)
	r.ready(http.StatusOK)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = start(t, s.cfg) // kill -9 has taken nothing
	r.ready(http.StatusOK)

	b.kill()
	startBroker(t, t.TempDir(), listen)
	followed(other, start(t, other.cfg)) // has no record yet, and makes the streams
	_ = r.stop()                         // whatever it says of a broker that is another one
	if err := s.open(); !errors.Is(err, broker.ErrStoreDamaged) {
		t.Errorf("Open = %v", err)
	}
}

// After a restore the broker is the one that the orchestrator knows.
func TestRemoteIsRestored(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var file bytes.Buffer
	c := natstest.Connect(t, broker.Config{URL: s.cfg.NATSURL})
	saved, err := backup.Write(t.Context(), c, &file)
	if err != nil {
		t.Fatal(err)
	}
	s.serve(t.TempDir())
	if err := s.open(); !errors.Is(err, broker.ErrStoreDamaged) {
		t.Fatalf("Open = %v", err)
	}
	restore := func() (backup.Manifest, error) {
		m, _, err := server.Restore(t.Context(), s.cfg, bytes.NewReader(file.Bytes()), natstest.Log(t))
		return m, err
	}
	if m, err := restore(); err != nil || m.Messages() != saved.Messages() {
		t.Fatalf("restored %d messages of %d, %v", m.Messages(), saved.Messages(), err)
	}
	r := start(t, s.cfg)
	r.ready(http.StatusOK)
	if _, err := restore(); err == nil || !strings.Contains(err.Error(), "another orchestrator uses it") {
		t.Errorf("restore beside a running orchestrator: %v", err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	// One that fails leaves the record as it is.
	s.serve(t.TempDir())
	file.Truncate(file.Len() / 2)
	if _, err := restore(); err == nil {
		t.Error("half a file was restored")
	}
	if err := s.open(); !errors.Is(err, broker.ErrStoreDamaged) {
		t.Errorf("Open = %v", err)
	}
}
