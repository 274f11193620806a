package dispatch

import (
	"sync/atomic"
	"testing"
	"time"

	"chiffon/orchestrator/gate"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// holds has an agent heard that holds an attempt.
func holds(id subject.TaskID, attempt int, boot uint64) func(*message.Heartbeat) {
	return func(hb *message.Heartbeat) {
		hb.Running = []message.Running{{TaskID: id, Attempt: attempt, Boot: boot}}
	}
}

// refuses has an agent say that it has handed a request back before its start.
func refuses(id subject.TaskID) func(*message.Heartbeat) {
	return func(hb *message.Heartbeat) {
		hb.Refused = []message.Refusal{{TaskID: id, Code: fault.ResourceLimitExceeded, Message: "100 MB are free"}}
	}
}

func withMemory(total int) func(*message.Heartbeat) {
	return func(hb *message.Heartbeat) {
		hb.Resources = message.HostResources{MemoryMB: total, MemoryFreeMB: total / 2}
	}
}

func needing(mb int) func(*Order) {
	return func(o *Order) { o.Request.Payload.Hints = &message.Hints{MaxMemoryMB: mb} }
}

// 5.4.4: work that may not be repeated is not taken from a silent holder. It is when its time is over (lost_after), and
// a restarted process counts that time anew.
func TestRuleReconcileSilentOnceWaitsForLostAfter(t *testing.T) {
	t.Parallel()
	cfg := brisk
	cfg.LostAfter = 2 * time.Second
	s := newSite(t, cfg)
	s.leads()
	id := s.submit()
	s.started(id, "a", 1, 1)
	log := s.phase(id, tasklog.PhaseEnded)
	if len(log) != 4 || log[2].Kind != tasklog.CancelRequested || !log[2].Message.Custom.Chiffon.Cancel.Deadline {
		t.Fatalf("%d entries, the third %s, want cancel_requested by deadline and the end", len(log), log[2].Kind)
	}
	if waited := log[2].Time.Sub(log[1].Time); waited < cfg.LostAfter-50*time.Millisecond {
		t.Errorf("asked to stop after %v, want %v", waited, cfg.LostAfter)
	}
	f := log[3].Message.Failure
	if log[3].Kind != tasklog.Error || f.Code != fault.Timeout || f.Context["attempted_retries"] == nil || f.Context["last_attempt"] == nil {
		t.Errorf("it ends with %s %+v, want 5001 with its context", log[3].Kind, f)
	}
	if waited := log[3].Time.Sub(log[2].Time); waited < cfg.Lease+cfg.Grace-50*time.Millisecond {
		t.Errorf("ended after %v, want lease and grace", waited)
	}
}

// 5.4.5: what is being stopped ends as soon as its holder has certainly lost it, also what may not be repeated; with
// the mark that readers ask for.
func TestRuleReconcileCancellingGone(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{Name: "one", LeaderQuiet: time.Second}) // a lease of 30 s
	s.leads()
	id := s.submit()
	s.beat("a", 1)
	s.started(id, "a", 1, 1)
	if _, err := s.d.Cancel(t.Context(), id, message.Cancel{By: "admin"}); err != nil {
		t.Fatal(err)
	}
	s.beat("a", 2, holds(id, 1, 1)) // it still tells of it
	s.beat("a", 2)
	if e := s.ended(id, tasklog.Cancelled); !e.Message.Custom.Chiffon.Gone {
		t.Error("the end does not say that the holder is gone")
	}
}

// A refusal before the start takes the task back at once and is no attempt; it goes to whoever has not refused it.
func TestRuleRefusedBeforeTheStart(t *testing.T) {
	t.Parallel()
	cfg := brisk
	cfg.Lease = 20 * time.Second // nothing is taken back for want of a start
	s := newSite(t, cfg)
	s.leads()
	for name, more := range map[string]func(*Order){"any": func(*Order) {}, "placed": inTheAttic} {
		attic := labelled("site", "attic")
		s.beat("a", 1, attic, func(hb *message.Heartbeat) { hb.Slots = 9 })
		id := s.submit(more)
		if name == "placed" {
			s.until(id, "placed on a", at("a"))
		}
		s.beat("b", 1, attic)
		s.beat("a", 1, attic, refuses(id))
		log := s.until(id, "placed on b", at("b"))
		back := log[len(log)-2]
		if back.Kind != tasklog.Held || back.Message.Custom.Chiffon.Hold.Detail != "agent a has refused it: 100 MB are free" {
			t.Errorf("%s: before it is placed on b comes %s %+v", name, back.Kind, back.Message.Custom.Chiffon)
		}
		if st := tasklog.Fold(log); st.Attempt != 0 {
			t.Errorf("%s: %d attempts were made", name, st.Attempt)
		}
		if times, until := s.d.Lapsed(id, "a"); times != 1 || time.Until(until) < cfg.Lease/2 {
			t.Errorf("%s: it has lapsed %d times, and a is tried again in %v", name, times, time.Until(until))
		}
		s.started(id, "b", 1, 1)
		s.ends(id)
		s.ended(id, tasklog.Succeeded)
	}
}

// What one of a type is too small for waits for one that is not, and ends with 5005 only when nobody ever was.
func TestRuleResources(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	s.beating(func() {
		s.beat("small", 1, withMemory(1000), func(hb *message.Heartbeat) { hb.Slots = 9 })
		s.beat("large", 1, withMemory(4000))
	})
	id := s.submit(needing(2000))
	s.until(id, "placed on the large one", at("large"))
	s.started(id, "large", 1, 1)
	s.ends(id)
	if st := s.state(s.submit(needing(500))); st.Target != subject.Any {
		t.Errorf("what everybody can do is for %s", st.Target)
	}
	f := s.ended(s.submit(needing(9000)), tasklog.Error).Message.Failure
	if f.Code != fault.ResourceLimitExceeded || f.Context["limit_name"] != "max_memory_mb" || number(f.Context["available"]) != 4000 || number(f.Context["required"]) != 9000 {
		t.Errorf("it ends with %+v, want 5005 with its context", f)
	}
}

func number(v any) int {
	switch n := v.(type) {
	case int:
		return n
	case float64:
		return int(n)
	}
	return -1
}

// An agent that is shut gets nothing; what was put to it and has not begun goes elsewhere when it is shut for long.
func TestRuleShutIsGivenNothing(t *testing.T) {
	t.Parallel()
	var shut atomic.Bool
	cfg := brisk
	cfg.Lease = 20 * time.Second
	cfg.Shut = func(id subject.AgentID, now time.Time) gate.Shut {
		if id == "a" && shut.Load() {
			return gate.Shut{Kind: gate.Paused, Text: "paused: new disk", Until: now.Add(time.Hour)}
		}
		return gate.Shut{}
	}
	s := newSite(t, cfg)
	s.leads()
	attic := labelled("site", "attic")
	s.beat("a", 1, attic, func(hb *message.Heartbeat) { hb.Slots = 9 })
	id, shared := s.submit(inTheAttic), s.submit()
	s.until(id, "placed on a", at("a"))
	s.beat("b", 1, attic, func(hb *message.Heartbeat) { hb.Slots = 5 })
	shut.Store(true)
	log := s.until(id, "placed on b", at("b"))
	if back := log[len(log)-2]; back.Kind != tasklog.Held || back.Message.Custom.Chiffon.Hold.Detail != "agent a gets no new work: paused: new disk" {
		t.Errorf("before it is placed on b comes %s %+v", back.Kind, back.Message.Custom.Chiffon)
	}
	s.until(s.submit(inTheAttic), "placed on b", at("b"))
	if st := s.state(shared); st.Target != subject.Any {
		t.Errorf("what anybody may take is for %s", st.Target)
	}
}
