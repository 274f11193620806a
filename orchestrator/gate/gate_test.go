package gate_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/orchestrator/breaker"
	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

const patience = 20 * time.Second

type site struct {
	testing.TB
	*broker.Client
	*gate.Gate
	agents *registry.Registry
	pokes  chan subject.AgentID
	stop   func()
}

func newSite(t testing.TB, c *broker.Client) *site {
	t.Helper()
	kv, err := c.Bucket(t.Context(), broker.AgentsBucket)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{TB: t, Client: c, pokes: make(chan subject.AgentID, 100)}
	if s.agents, err = registry.Open(t.Context(), kv, time.Minute, natstest.Log(t)); err != nil {
		t.Fatal(err)
	}
	breakers, err := breaker.Open(t.Context(), breaker.Config{
		Client: c, Agents: s.agents, Ledger: ledger.New(c, natstest.Log(t)), Leads: func() bool { return false }, Log: natstest.Log(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Gate, err = gate.Open(t.Context(), gate.Config{Client: c, Agents: s.agents, Breakers: breakers, Log: natstest.Log(t)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{s.Gate.Run, func(ctx context.Context) error {
		return c.Serve(ctx, subject.AllPokes, func(_ context.Context, subj string, _ []byte) []byte {
			s.pokes <- subject.AgentOf(subj)
			return nil
		})
	}} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	}
	s.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(s.stop)
	return s
}

func (s *site) until(what string, ok func() bool) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			s.Fatal("waited in vain until " + what)
		}
	}
}

func (s *site) shut(id subject.AgentID, kind string) func() bool {
	return func() bool { return s.Shut(id, time.Now()).Kind == kind }
}

func TestPauseEndsByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, natstest.Run(t))
	end := time.Now().Add(500 * time.Millisecond)
	if err := s.Pause(t.Context(), "nas", end, "new disk", "admin"); err != nil {
		t.Fatal(err)
	}
	var reply message.HeartbeatReply
	now := time.Now()
	s.Tell("nas", end.Add(-time.Millisecond), &reply)
	if sh := s.Shut("nas", end.Add(-time.Millisecond)); sh.Kind != gate.Paused || !sh.Until.Equal(end) || !strings.HasSuffix(sh.Text, ": new disk") {
		t.Errorf("Shut = %+v", sh)
	}
	if reply.PausedUntil == nil || !reply.PausedUntil.Equal(end) || reply.Drain || !strings.Contains(reply.Notice, "new disk") {
		t.Errorf("reply = %+v at %v", reply, now)
	}
	s.until("the pause is over", s.shut("nas", ""))
	for end := time.After(patience); ; { // of what was served before it listened nothing is heard
		select {
		case id := <-s.pokes:
			if id != "nas" {
				t.Errorf("%s is poked", id)
			}
			if kv, err := s.Bucket(t.Context(), broker.StateBucket); err == nil {
				if _, err := kv.Get(t.Context(), "word.nas"); err != nil {
					return
				}
			}
		case <-end:
			t.Fatal("the agent is not told that its pause is over, or the word stands for ever")
		}
	}
}

func TestDrainLastsUntilResume(t *testing.T) {
	t.Parallel()
	s := newSite(t, natstest.Run(t))
	deadline := time.Now().Add(-time.Second)
	if err := s.Drain(t.Context(), "nas", deadline, "", "admin"); err != nil {
		t.Fatal(err)
	}
	var reply message.HeartbeatReply
	s.Tell("nas", time.Now(), &reply)
	if !reply.Drain || reply.DrainUntil == nil || !reply.DrainUntil.Equal(deadline) || reply.PausedUntil != nil || !strings.HasPrefix(reply.Notice, "drained since") {
		t.Errorf("reply = %+v", reply)
	}
	v := view.Agent{AgentID: "nas", State: message.StateReady}
	if s.Describe(&v, time.Now()); v.State != message.StateDraining || v.DrainUntil == nil {
		t.Errorf("view = %+v", v)
	}
	if err := s.Resume(t.Context(), "nas", "admin"); err != nil {
		t.Fatal(err)
	}
	if sh := s.Shut("nas", time.Now()); sh != (gate.Shut{}) {
		t.Errorf("after resume: %+v", sh)
	}
}

// What is said at one orchestrator is known at the others, and to the next that starts.
func TestWordsAreShared(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	one, two := newSite(t, c), newSite(t, c)
	woken := two.agents.Changed()
	if err := one.Drain(t.Context(), "nas", time.Now().Add(time.Hour), "", "admin"); err != nil {
		t.Fatal(err)
	}
	two.until("the other knows", two.shut("nas", gate.Draining))
	<-woken
	if err := two.Pause(t.Context(), "nas", time.Now().Add(time.Hour), "", "admin"); err != nil {
		t.Fatal(err)
	}
	one.until("the last word counts", one.shut("nas", gate.Paused))
	one.stop()
	if three := newSite(t, c); !three.shut("nas", gate.Paused)() {
		t.Error("the next orchestrator knows nothing")
	}
	if err := two.Resume(t.Context(), "nas", "admin"); err != nil {
		t.Fatal(err)
	}
	if four := newSite(t, c); !four.shut("nas", "")() {
		t.Error("what was taken back still stands")
	}
}

func TestNewerWordIsRefused(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	kv, err := c.Bucket(t.Context(), broker.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	for id, data := range map[string]string{"a": `{"v":2,"kind":"paused"}`, "b": `{"v":1,"kind":"asleep"}`, "c": `?`} {
		if _, err := kv.Put(t.Context(), "word."+id, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	s := newSite(t, c)
	for _, id := range []subject.AgentID{"a", "b", "c"} {
		if sh := s.Shut(id, time.Now()); sh.Kind != gate.Paused || !strings.Contains(sh.Text, "newer version") {
			t.Errorf("Shut(%s) = %+v", id, sh)
		}
	}
	if err := s.Resume(t.Context(), "a", "admin"); err != nil || !s.shut("a", "")() {
		t.Errorf("Resume = %v, %+v", err, s.Shut("a", time.Now()))
	}
}

// Who did what stands in the audit.
func TestWordsAreRecorded(t *testing.T) {
	t.Parallel()
	s := newSite(t, natstest.Run(t))
	end := time.Now().Add(time.Hour).Round(time.Second)
	for what, do := range map[string]func() error{
		"pause":  func() error { return s.Pause(t.Context(), "nas", end, "new disk", "admin") },
		"drain":  func() error { return s.Drain(t.Context(), "nas", end, "old disk", "admin") },
		"resume": func() error { return s.Resume(t.Context(), "nas", "admin") },
		"reset":  func() error { _, err := s.Reset(t.Context(), "nas", "admin"); return err },
	} {
		if err := do(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	found := map[string]gate.Record{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for m, err := range s.Tail(ctx, subject.AuditStream, 1) {
		var r gate.Record
		if err != nil || m.Subject != subject.Audit("operator") || json.Unmarshal(m.Data, &r) != nil {
			t.Fatalf("%s %s: %v", m.Subject, m.Data, err)
		}
		if found[r.What] = r; len(found) == 4 {
			break
		}
	}
	for what, r := range found {
		timed := what == "pause" || what == "drain"
		if r.Who != "admin" || r.Agent != "nas" || r.Time.IsZero() || (r.Until != nil) != timed || timed && (!r.Until.Equal(end) || r.Message == "") {
			t.Errorf("%s: %+v", what, r)
		}
	}
}
