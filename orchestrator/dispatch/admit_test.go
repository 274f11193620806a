package dispatch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// As many tasks wait as may: nothing new is accepted, but what was accepted before still is. Who begins, or ends, makes
// room.
func TestSubmitRefusesACrowd(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*Config){
		"max_queued":               func(c *Config) { c.MaxQueued = 2 },
		"max_queued_per_submitter": func(c *Config) { c.MaxQueuedPerSubmitter = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := brisk
			limit(&cfg)
			s := newSite(t, cfg)
			first, third := order(), order()
			id, _, err := s.d.Submit(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			held := s.submit(inTheAttic)
			_, _, err = s.d.Submit(t.Context(), third)
			crowded, ok := errors.AsType[*Crowded](err)
			if !ok || crowded.Fault.Code != fault.ResourceLimitExceeded || crowded.Fault.Context["limit_name"] != name ||
				crowded.Fault.Context["available"] != 2 || crowded.Fault.Context["required"] != 3 {
				t.Fatalf("Submit = %v %+v, want 5005", err, crowded)
			}
			if again, created, err := s.d.Submit(t.Context(), first); err != nil || created || again != id {
				t.Errorf("Submit of what was accepted = %s, %v, %v, want %s", again, created, err, id)
			}
			if _, err := s.d.Cancel(t.Context(), held, message.Cancel{By: "admin"}); err != nil {
				t.Fatal(err)
			}
			last, created, err := s.d.Submit(t.Context(), third)
			if err != nil || !created {
				t.Fatalf("Submit after a cancel = %v, %v", created, err)
			}
			s.started(id, "a", 1, 1)
			s.shows(id, tasklog.PhaseRunning)
			s.submit()
			s.started(last, "b", 1, 2)
			s.fails(last, noon.AddDate(99, 0, 0))
			s.shows(last, tasklog.PhaseFailed)
			if _, _, err := s.d.Submit(t.Context(), order()); err == nil {
				t.Error("what waits for its next attempt does not count")
			}
		})
	}
}

// What was accepted before is accepted again, whatever has changed since.
func TestRuleSubmitAgainGoesBeforeRefusals(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	o := order()
	id, _, err := s.d.Submit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.d.full.Store(true)
	if again, created, err := s.d.Submit(t.Context(), o); err != nil || created || again != id {
		t.Errorf("while the log is full: %s, %v, %v, want %s", again, created, err, id)
	}
	if _, _, err := s.d.Submit(t.Context(), order()); !errors.Is(err, ErrFull) {
		t.Errorf("another: %v, want ErrFull", err)
	}
	s.d.full.Store(false)
	s.beat("a", 1, func(hb *message.Heartbeat) { hb.WorkTypes = []message.Offer{{Name: "other", Attempts: 1}} })
	if again, created, err := s.d.Submit(t.Context(), o); err != nil || created || again != id {
		t.Errorf("once nobody offers it: %s, %v, %v, want %s", again, created, err, id)
	}
	o.Request.Payload.Parameters = []byte(`{"depth": 2}`)
	if _, _, err := s.d.Submit(t.Context(), o); err == nil {
		t.Error("another content is accepted")
	}
}

// 1: new tasks are refused while there is still room, so that what was accepted can start and end.
func TestRuleSubmitLeavesRoomForEnds(t *testing.T) {
	t.Parallel()
	server, err := broker.Start(broker.ServerConfig{Dir: t.TempDir(), Relaxed: true, SyncEvery: time.Minute, Log: natstest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	c := natstest.Connect(t, broker.Config{Embedded: server, Log: natstest.Log(t)})
	limits := broker.LimitsFor(1 << 30)
	limits.Tasks = 1 << 20
	if err := c.Ensure(t.Context(), limits, 1); err != nil {
		t.Fatal(err)
	}
	s := join(t, c, Config{Name: "one", Sweep: time.Hour})
	large := func(o *Order) { o.Request.Custom.Chiffon.Description = strings.Repeat("x", 50<<10) }
	var ids []subject.TaskID
	for {
		id, created, err := s.d.Submit(t.Context(), order(large))
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || !created || len(ids) > 30 {
			t.Fatalf("submission %d: %v, %v, want ErrFull some day", len(ids), created, err)
		}
		ids = append(ids, id)
		s.d.measure(t.Context())
	}
	info, err := s.StreamInfo(t.Context(), subject.TasksStream)
	if err != nil {
		t.Fatal(err)
	}
	if used := float64(info.State.Bytes) / float64(info.Config.MaxBytes); used < 0.9 || used > 0.96 {
		t.Errorf("refused when %.0f %% were taken, want 90", 100*used)
	}
	for _, id := range ids {
		s.started(id, "a", 1, 1)
		s.ends(id)
		s.ended(id, tasklog.Succeeded)
	}
}
