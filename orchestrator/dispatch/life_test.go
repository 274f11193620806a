package dispatch

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// leads waits until an orchestrator leads.
func (s *site) leads() {
	s.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !s.d.leads.Load(); <-tick.C {
		if time.Now().After(end) {
			s.Fatal("it does not lead")
		}
	}
}

// Whatever a task is at, a cancel of it is stored at once; of what has not begun it is the end. Late and repeated ones
// change nothing.
func TestRuleCancelAtEveryPhase(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	want := message.Cancel{By: "admin", Reason: "wrong host"}
	cancel := func(id subject.TaskID, ended bool) {
		t.Helper()
		if got, err := s.d.Cancel(t.Context(), id, want); err != nil || got != ended {
			t.Fatalf("Cancel = %v, %v, want %v", got, err, ended)
		}
	}
	if _, err := s.d.Cancel(t.Context(), subject.TaskID(message.NewUUID()), want); !errors.Is(err, ErrUnknown) {
		t.Errorf("Cancel of nothing = %v, want ErrUnknown", err)
	}

	queued := s.submit()
	cancel(queued, false)
	s.ended(queued, tasklog.Cancelled)
	cancel(queued, true)

	held := s.submit(func(o *Order) { o.Request.Custom.Chiffon.On = map[string]string{"site": "moon"} })
	cancel(held, false)
	s.ended(held, tasklog.Cancelled)

	failed := s.submit()
	s.started(failed, "a", 1, 2)
	s.fails(failed, time.Now().Add(time.Hour))
	cancel(failed, false)
	s.ended(failed, tasklog.Cancelled)

	running := s.submit()
	s.started(running, "b", 1, 1)
	cancel(running, false)
	if st := s.state(running); st.Phase != tasklog.PhaseCancelling || st.Cancel.Reason != "wrong host" {
		t.Errorf("state after Cancel = %+v, want cancelling for the reason given", st)
	}
	cancel(running, false) // again: nothing new
	before := s.state(running).TailSeq
	s.ends(running) // it was faster
	if e := s.ended(running, tasklog.Succeeded); e.Expect != before {
		t.Errorf("a second Cancel wrote something: the end follows %d, want %d", e.Expect, before)
	}
	if task, _ := s.ledger.Get(queued); !task.Ended() {
		t.Error("the views do not show what Cancel has stored")
	}
}

// What may not be repeated ends by force only, once its holder has certainly had time to stop.
func TestRuleCancelByForce(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	id := s.submit()
	s.started(id, "a", 1, 1)
	for _, force := range []bool{false, true, true} {
		if ended, err := s.d.Cancel(t.Context(), id, message.Cancel{By: "admin", Reason: "enough", Signal: "INT", Force: force}); err != nil || ended {
			t.Fatal(ended, err)
		}
	}
	log := s.phase(id, tasklog.PhaseEnded)
	asked, e := log[len(log)-2], log[len(log)-1]
	if e.Kind != tasklog.Error || e.Message.Failure.Code != fault.Timeout {
		t.Errorf("it ends with %s %+v, want error 5001", e.Kind, e.Message.Failure)
	}
	if len(log) != 5 || !asked.Message.Custom.Chiffon.Cancel.Force || asked.Message.Custom.Chiffon.Cancel.Signal != "INT" {
		t.Errorf("%d entries, before the end %+v, want one more that adds force", len(log), asked.Message.Custom.Chiffon)
	}
	if waited := e.Time.Sub(asked.Time); waited < brisk.Lease+brisk.Grace-50*time.Millisecond {
		t.Errorf("it was ended after %v, want lease and grace", waited)
	}
}

// A cancel of what was just taken away for silence is stored at once, and ends it when settled. Its old holder may
// still say that it was faster.
func TestRuleCancelOfASilentHolder(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	id := s.submit()
	s.started(id, "a", 1, 3)
	s.until(id, "revoked", func(st tasklog.State) bool { return st.Phase == tasklog.PhaseFailed && st.Silent })
	if _, err := s.d.Cancel(t.Context(), id, message.Cancel{By: "admin"}); err != nil {
		t.Fatal(err)
	}
	end := s.ended(id, tasklog.Cancelled)
	log, err := s.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if revoked := log[2]; end.Time.Sub(revoked.Time) < brisk.Lease+brisk.Grace-50*time.Millisecond {
		t.Errorf("it ends %v after it was revoked, want lease and grace", end.Time.Sub(revoked.Time))
	}

	slow := newSite(t, Config{Name: "one", LeaderQuiet: time.Second}) // a lease of 30 s: nothing is settled here
	id = slow.submit()
	slow.started(id, "a", 1, 3)
	slow.shows(id, tasklog.PhaseRunning)
	task, _ := slow.ledger.Get(id)
	if _, err := slow.d.act(t.Context(), task, action{kind: tasklog.AttemptFailed, silent: true, fault: fault.New(fault.Timeout, "silent")}); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.d.Cancel(t.Context(), id, message.Cancel{By: "admin"}); err != nil {
		t.Fatal(err)
	}
	if st := slow.state(id); st.Phase != tasklog.PhaseCancelling || !st.Silent {
		t.Errorf("it is %+v, want cancelling behind silence", st)
	}
	slow.ends(id)
	slow.ended(id, tasklog.Succeeded)
}

func TestRuleRetryAfterItsDelay(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	id := s.submit(func(o *Order) { o.Request.Custom.Chiffon.Priority = "high" })
	s.started(id, "a", 1, 2)
	due := time.Now().Add(700 * time.Millisecond)
	s.fails(id, due)
	log := s.until(id, "queued again", func(st tasklog.State) bool { return st.Phase == tasklog.PhaseQueued && st.Attempt == 1 })
	first, again := log[0], log[len(log)-1]
	if again.Time.Before(due) {
		t.Errorf("queued again %v early", due.Sub(again.Time))
	}
	if again.ID == first.ID || again.Subject != first.Subject || again.Attempt != 1 ||
		again.Message.RequestID != first.Message.RequestID || again.Message.TraceID != first.Message.TraceID ||
		string(again.Message.Request.Parameters) != string(first.Message.Request.Parameters) {
		t.Errorf("queued again as %+v %+v, was %+v", again.Subject, again.Message.Envelope, first.Subject)
	}
	if x := again.Message.Custom.Chiffon; x.Attempts != 2 || x.SubmittedBy != "admin" {
		t.Errorf("queued again with %+v, want the attempts allowed and the submitter", x)
	}
}

func TestRuleReconcileGoneMovesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{Name: "one", LeaderQuiet: time.Second}) // a lease of 30 s
	s.leads()
	twice, once := s.submit(), s.submit()
	s.beat("a", 1)
	s.started(twice, "a", 1, 2)
	s.started(once, "a", 1, 1)
	s.phase(twice, tasklog.PhaseRunning)
	s.beat("a", 2)
	if e := s.ended(once, tasklog.Error); e.Message.Failure.Code != fault.AgentUnavailable || !e.Message.Custom.Chiffon.Gone {
		t.Errorf("it ends with %+v, want 5002 gone", e.Message.Failure)
	}
	log := s.until(twice, "queued again", func(st tasklog.State) bool { return st.Phase == tasklog.PhaseQueued && st.Deaths == 1 })
	revoked, again := log[len(log)-2], log[len(log)-1]
	if at := revoked.Message.Custom.Chiffon.RetryAt; at == nil || at.Sub(revoked.Time) < 500*time.Millisecond || again.Time.Before(at.Add(-50*time.Millisecond)) {
		t.Errorf("revoked at %v, due at %v, queued at %v, want the delay of a second attempt between", revoked.Time, at, again.Time)
	}
}

func TestRulePoison(t *testing.T) {
	t.Parallel()
	s := newSite(t, Config{Name: "one", LeaderQuiet: time.Second})
	s.leads()
	id := s.submit()
	for boot := uint64(1); boot <= tasklog.Poison; boot++ {
		s.beat("a", boot)
		s.until(id, "queued", func(st tasklog.State) bool { return st.Phase == tasklog.PhaseQueued && st.Attempt == int(boot)-1 })
		s.started(id, "a", boot, 99)
		s.beat("a", boot+1)
	}
	if e := s.ended(id, tasklog.Error); e.Message.Failure.Code != fault.AgentUnavailable || !strings.Contains(e.Message.Failure.Message, "died three times") {
		t.Errorf("it ends with %+v, want 5002 and why", e.Message.Failure)
	}
}

func TestRuleReconcileSilentThenSettled(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	id := s.submit()
	s.started(id, "a", 1, 2)
	log := s.until(id, "queued again", func(st tasklog.State) bool { return st.Phase == tasklog.PhaseQueued && st.Attempt == 1 })
	revoked, again := log[len(log)-2], log[len(log)-1]
	if revoked.Kind != tasklog.AttemptFailed || !revoked.Message.Custom.Chiffon.Silent || revoked.Message.Failure.Code != fault.Timeout {
		t.Errorf("revoked by %s %+v, want a silent attempt_failed", revoked.Kind, revoked.Message.Failure)
	}
	if waited := again.Time.Sub(revoked.Time); waited < brisk.Lease+brisk.Grace-50*time.Millisecond {
		t.Errorf("queued again after %v, want lease and grace", waited)
	}
}

func TestRuleQueueTimeout(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	e := s.ended(s.submit(func(o *Order) { o.QueueTimeout = 300 * time.Millisecond }), tasklog.Error)
	f := e.Message.Failure
	if f.Code != fault.Timeout || f.Context["attempted_retries"] != 0 || f.Context["last_attempt"] == nil {
		t.Errorf("it ends with %+v, want 5001 with its context", f)
	}
}

func TestRuleDeadline(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	id := s.submit(func(o *Order) { o.Request.Payload.Hints = &message.Hints{MaxDurationSeconds: 1} })
	s.started(id, "a", 1, 1) // and is never heard again
	log := s.phase(id, tasklog.PhaseEnded)
	if asked := log[len(log)-2]; asked.Kind != tasklog.CancelRequested || !asked.Message.Custom.Chiffon.Cancel.Deadline {
		t.Errorf("before its end comes %s, want a cancel_requested by deadline", asked.Kind)
	}
	if end := log[len(log)-1]; end.Kind != tasklog.Error || end.Message.Failure.Code != fault.Timeout {
		t.Errorf("it ends with %s, want error 5001", end.Kind)
	}
}

// A request that was taken and forgotten is put again, and the older one can start nothing any more.
func TestRuleReconcileQueuedAcknowledged(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	id := s.submit()
	cons, err := s.Consumer(t.Context(), subject.TypeConsumer("infra", subject.Normal))
	if err != nil {
		t.Fatal(err)
	}
	m, err := cons.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := s.until(id, "queued again", func(st tasklog.State) bool { return st.RequestSeq > 1 })
	if again := log[len(log)-1]; again.Kind != tasklog.Queued || again.Subject.Target != subject.Any {
		t.Errorf("it is followed by %s for %s, want queued for any", again.Kind, again.Subject.Target)
	}
}

func TestRuleStray(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	o := order(func(o *Order) { o.Request.Payload.TaskID = subject.TaskID(message.NewUUID()) })
	good, err := o.Request.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		data string
		code fault.Code
	}{
		"no JSON":            {"hello", fault.InvalidMessage},
		"a field is missing": {`{"protocol_version": "1.0"}`, fault.InvalidMessage},
		"no entry's headers": {string(good), fault.InvalidMessage},
		"another version":    {`{"protocol_version": "2.0"}`, fault.UnsupportedWorkType},
		"empty":              {"", fault.InvalidMessage},
	} {
		id := subject.TaskID(message.NewUUID())
		s.put(subject.Request(id, "infra", subject.Any, subject.Normal), c.data)
		if e := s.ended(id, tasklog.Error); e.Message.Failure.Code != c.code {
			t.Errorf("%s: it ends with %d, want %d", name, e.Message.Failure.Code, c.code)
		}
	}
	s.put("chiffon.task.NOBODY.request.infra.any.normal", "hello")
	s.put("chiffon.task.somebody.request.infra.any.normal", "hello") // no UUID, and a task all the same
	s.ended("somebody", tasklog.Error)
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	s.beat("a", 1)
	id := s.submit(func(o *Order) { o.Request.Custom.Chiffon.On = map[string]string{"site": "attic"} })
	if st := s.state(id); st.Phase != tasklog.PhaseHeld || st.Hold.Reason != "placement" {
		t.Fatalf("state = %+v, want held for a place", st)
	}
	s.beat("b", 1, labelled("site", "attic"))
	placed := func(st tasklog.State) bool { return st.Phase == tasklog.PhaseQueued && st.Target == "b" }
	s.until(id, "placed on b", placed)
	cons, err := s.Consumer(t.Context(), subject.AgentConsumer("b", subject.Normal))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := cons.Next(jetstream.FetchMaxWait(patience)); err != nil || m.Subject() != subject.Request(id, "infra", "b", subject.Normal) {
		t.Fatalf("b is handed %v, %v", m, err)
	}
	// It does not begin, and is silent by now: the task is taken back, and waits.
	log := s.until(id, "taken back", func(st tasklog.State) bool { return st.Phase == tasklog.PhaseHeld && st.TailSeq > 2 })
	if waited := log[len(log)-1].Time.Sub(log[len(log)-2].Time); waited < brisk.Lease-50*time.Millisecond {
		t.Errorf("taken back after %v, want a lease", waited)
	}
	s.beating(func() { s.beat("b", 1, labelled("site", "attic")) })
	s.until(id, "placed on b again", func(st tasklog.State) bool { return placed(st) && st.TailSeq > log[len(log)-1].Seq })
	s.started(id, "b", 1, 1)
	s.ends(id)
	s.ended(id, tasklog.Succeeded)
}

func TestConsumersOfAnAgent(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	names := func() []string {
		t.Helper()
		names, err := s.d.Consumers(t.Context(), "a", "infra")
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if got := names(); len(got) != 4 || got[0] != "type_infra_critical" || got[3] != "type_infra_low" {
		t.Errorf("Consumers = %v, want those of the type, first served first", got)
	}
	s.submit(func(o *Order) { o.Request.Custom.Chiffon.Agent = "a" })
	if got := names(); len(got) != 8 || got[0] != "agent_a_critical" || got[1] != "type_infra_critical" || got[7] != "type_infra_low" {
		t.Errorf("Consumers = %v, want both, first served first", got)
	}
}

func TestOneLeads(t *testing.T) {
	t.Parallel()
	server, c := natstest.Start(t, broker.ServerConfig{Dir: t.TempDir(), Relaxed: true})
	cfg := brisk
	cfg.LeaderQuiet = 5 * time.Second
	first := join(t, c, cfg)
	first.leads()
	cfg.Name = "two"
	// The second has a connection of its own, so that the first can be cut off.
	second := join(t, natstest.Connect(t, broker.Config{Embedded: server, Log: natstest.Log(t)}), cfg)
	if _, _, err := second.d.Submit(t.Context(), order()); err != nil {
		t.Fatalf("who does not lead takes no work: %v", err)
	}
	if second.d.leads.Load() {
		t.Error("two lead")
	}
	first.stop()
	began := time.Now()
	second.leads()
	if took := time.Since(began); took >= cfg.LeaderQuiet {
		t.Errorf("it took %v to lead after the leader had let go", took)
	}
}

func TestSilentLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	kv, err := s.Bucket(t.Context(), broker.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := candidate{kv: kv, name: "two", quiet: time.Hour, changed: now, log: natstest.Log(t)}
	if c.try(t.Context(), now) {
		t.Fatal("it leads beside a leader")
	}
	s.stop()
	if _, err := kv.PutString(t.Context(), leaderKey, "gone without a word"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		leads bool
	}{{0, false}, {time.Hour - 1, false}, {time.Hour, true}, {2 * time.Hour, true}} {
		if got := c.try(t.Context(), now.Add(step.after)); got != step.leads {
			t.Errorf("try after %v = %v, want %v", step.after, got, step.leads)
		}
	}
	// Somebody takes its place while it is stopped: it notices at its next word.
	if _, err := kv.PutString(t.Context(), leaderKey, "three"); err != nil {
		t.Fatal(err)
	}
	if c.try(t.Context(), now.Add(3*time.Hour)) {
		t.Error("it leads although another does")
	}
	c.letGo()
	if e, err := kv.Get(t.Context(), leaderKey); err != nil || string(e.Value()) != "three" {
		t.Errorf("leader = %v, %v: it let go for another", e, err)
	}
}

func TestOldTasksAreRemoved(t *testing.T) {
	t.Parallel()
	cfg := brisk
	cfg.Keep = 300 * time.Millisecond
	s := newSite(t, cfg)
	s.leads()
	open, old := s.submit(), s.submit()
	s.put(subject.Status(old, "a"), "some status")
	s.started(old, "a", 1, 1)
	s.ends(old)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		if _, ok := s.ledger.Get(old); !ok {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is still there")
		}
	}
	for _, stream := range []string{subject.TasksStream, subject.StatusStream} {
		if seq, err := s.End(t.Context(), stream, subject.Task(old)); err != nil || seq != 0 {
			t.Errorf("%s still holds entry %d of it, %v", stream, seq, err)
		}
	}
	if st := s.state(open); st.Phase != tasklog.PhaseQueued {
		t.Errorf("a task without an end is %s, want queued", st.Phase)
	}
}
