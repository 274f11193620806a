package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/server"
	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

// A site is an orchestrator's settings and the broker that NATS_URL names, which belongs to somebody else.
type site struct {
	*testing.T
	cfg   server.Config
	store broker.ServerConfig
	b     *broker.Server
}

// newSite has accepted one task, and its orchestrator is stopped.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, cfg: here(t), store: broker.ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Relaxed: true, Log: natstest.Log(t)}}
	s.serve(s.store.Dir)
	s.cfg.NATSURL = s.b.URL()
	s.store.Listen = strings.TrimPrefix(s.b.URL(), "nats://")
	t.Cleanup(func() { s.b.Stop() })
	r := start(t, s.cfg)
	r.ready(http.StatusOK)
	if res := r.do(http.MethodPost, "/v1/tasks", survey); res.StatusCode != http.StatusAccepted {
		t.Fatalf("POST /v1/tasks = %s", res.Status)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	return s
}

// serve runs the broker on a store, at the address that it has.
func (s *site) serve(dir string) {
	s.Helper()
	if s.b != nil {
		s.b.Stop()
	}
	s.store.Dir = dir
	var err error
	if s.b, err = broker.Start(s.store); err != nil {
		s.Fatal(err)
	}
}

// js is a way to the broker for what no program of ours would do.
func (s *site) js() jetstream.JetStream {
	s.Helper()
	nc, err := nats.Connect(s.cfg.NATSURL)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.Fatal(err)
	}
	return js
}

func (s *site) open() error {
	o, err := server.Open(s.Context(), s.cfg, natstest.Log(s))
	if err == nil {
		o.Close()
	}
	return err
}

func (s *site) record() string { return filepath.Join(s.cfg.State, "remote.json") }

// recorded is where a stream ends in the record.
func (s *site) recorded(stream string) uint64 {
	s.Helper()
	var rec struct {
		Streams map[string]struct {
			Last uint64 `json:"last_seq"`
		}
	}
	data, err := os.ReadFile(s.record())
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err != nil {
		s.Fatal(err)
	}
	return rec.Streams[stream].Last
}

// until waits until something is so.
func (s *site) until(what string, so func() bool) {
	s.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(100 * time.Second); !so(); <-tick.C {
		if time.Now().After(end) {
			s.Fatalf("never: %s", what)
		}
	}
}

// rewrite changes the record where it first says something.
func rewrite(s *site, from, to string) {
	s.Helper()
	data, err := os.ReadFile(s.record())
	if err == nil && !bytes.Contains(data, []byte(from)) {
		err = errors.New("the record has no " + from)
	}
	if err == nil {
		err = os.WriteFile(s.record(), bytes.Replace(data, []byte(from), []byte(to), 1), 0o600)
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) stream(name string) {
	s.Helper()
	if _, err := s.js().CreateStream(s.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
		s.Fatal(err)
	}
}

func (s *site) drop(name string) {
	s.Helper()
	if err := s.js().DeleteStream(s.Context(), name); err != nil {
		s.Fatal(err)
	}
}

// ends is where the task log ends.
func (s *site) ends() uint64 {
	s.Helper()
	stream, err := s.js().Stream(s.Context(), subject.TasksStream)
	if err != nil {
		s.Fatal(err)
	}
	return stream.CachedInfo().State.LastSeq
}

// raise has the record say where the task log ends, as it does when the orchestrator has run for a while.
func (s *site) raise(last uint64) {
	s.Helper()
	var rec map[string]any
	data, err := os.ReadFile(s.record())
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err == nil {
		rec["streams"].(map[string]any)[subject.TasksStream].(map[string]any)["last_seq"] = last
		data, err = json.Marshal(rec)
	}
	if err == nil {
		err = os.WriteFile(s.record(), data, 0o600)
	}
	if err != nil {
		s.Fatal(err)
	}
}
