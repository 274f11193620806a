package intake_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/agentrunner/intake"
	"chiffon/agentrunner/spool"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// runs reports whether one of the processes that a door has seen still runs. Its command line tells it from another
// of the same number.
func (d door) runs(seen []byte) bool {
	for pid := range strings.FieldsSeq(string(seen)) {
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err == nil && strings.Contains(string(line), d.path) {
			return true
		}
	}
	return false
}

// gone fails the test unless every process that a door has seen is gone.
func (d door) gone(seen []byte) {
	d.w.Helper()
	if d.runs(seen) {
		d.w.Errorf("one of the processes %q of the work still runs", seen)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, workType := range []string{"gate", "once"} {
		t.Run(workType, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.agent("one", func(c *intake.Config) { c.Lease = time.Hour }) // only the heartbeat's word brings it to look
			d := w.door()
			id := w.submit(order{workType: workType, params: d.params()})
			seen := d.begun(1)
			w.cancel(id, message.Cancel{Reason: "enough", By: "alice", GraceSeconds: 2})
			a.Control(message.HeartbeatReply{Consumers: consumers(), Cancel: []subject.TaskID{id}})
			end := w.entry(id, tasklog.Cancelled)
			d.gone(seen)
			if r := end.Message.Result; r.Status != message.ResultCancelled || !strings.Contains(r.Output, "cancelled by alice: enough") {
				t.Errorf("result %+v", r)
			}
			if st := w.state(id); st.Void != 0 || st.End != tasklog.Cancelled {
				t.Errorf("state %+v", st)
			}
		})
	}
}

func TestDeadlineByTheOrchestrator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one") // its own look at the log finds it
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	w.cancel(id, message.Cancel{Reason: "max_duration_seconds", Deadline: true})
	if f := w.entry(id, tasklog.Error).Message.Failure; f.Code != fault.Timeout {
		t.Errorf("ended with %+v", f)
	}
}

// Work that ends by itself although stop is wanted tells what happened.
func TestCancelComesTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one", func(c *intake.Config) { c.Lease = time.Hour })
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	w.cancel(id, message.Cancel{By: "alice"})
	d.open()
	end := w.entry(id, tasklog.Succeeded)
	want := []tasklog.Kind{tasklog.Submitted, tasklog.Started, tasklog.CancelRequested, tasklog.Succeeded}
	if got := w.kinds(id); !slices.Equal(got, want) || end.Message.Result.Output != "through\n" {
		t.Errorf("log is %v, want %v", got, want)
	}
}

func TestLostAttemptIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one", func(c *intake.Config) { c.Lease = time.Second })
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	seen := d.begun(1)
	w.revoke(id)
	late := w.late(id)
	d.gone(seen)
	if late.Custom.Chiffon.Attempt != 1 || !strings.Contains(late.Payload.Step.Name, "cancelled") {
		t.Errorf("late status %+v %+v", late.Payload.Step, late.Custom.Chiffon)
	}
	want := []tasklog.Kind{tasklog.Submitted, tasklog.Started, tasklog.AttemptFailed}
	if got := w.kinds(id); !slices.Equal(got, want) {
		t.Errorf("log is %v, want %v", got, want)
	}
}

// Success counts although the attempt was taken away, as long as nobody else has begun.
func TestSuccessAfterSilence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one", func(c *intake.Config) { c.Lease = time.Hour })
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	w.revoke(id)
	d.open()
	w.entry(id, tasklog.Succeeded)
	if st := w.state(id); st.Void != 0 {
		t.Errorf("state %+v", st)
	}
}

// Once another attempt has begun, it does not count any more.
func TestSuccessAfterSomebodyElseBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.agent("one", func(c *intake.Config) { c.Lease = time.Hour })
	d := w.door()
	o := order{workType: "gate", params: d.params()}
	id := w.submit(o)
	d.begun(1)
	w.revoke(id)
	one.Control(message.HeartbeatReply{Consumers: consumers(), Drain: true})
	w.agent("two", func(c *intake.Config) { c.Lease = time.Hour })
	w.requeue(id, o)
	d.begun(2)
	d.open()
	w.entry(id, tasklog.Succeeded)
	late := w.late(id)
	st := w.state(id)
	if st.Holder != "two" || st.Void != 0 || late.Custom.AgentID != "one" || !strings.Contains(late.Payload.Step.Name, "succeeded") {
		t.Errorf("state %+v, late %+v", st, late.Payload.Step)
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	o := order{workType: "hungry"}
	id := w.submit(o)
	failed := w.entry(id, tasklog.AttemptFailed)
	at := failed.Message.Custom.Chiffon.RetryAt
	if f := failed.Message.Failure; f.Code != fault.ResourceLimitExceeded || at == nil || at.Sub(failed.Time) > time.Second || at.Before(failed.Time) {
		t.Errorf("attempt failed with %+v, retry at %v", f, at)
	}
	w.requeue(id, o)
	if f := w.entry(id, tasklog.Error).Message.Failure; f.Code != fault.ResourceLimitExceeded {
		t.Errorf("ended with %+v", f)
	}
	if st := w.state(id); st.Attempt != 2 || st.Void != 0 {
		t.Errorf("state %+v", st)
	}
}

// What wrote too much would do so again: it is not tried again, although its code allows that.
func TestTooMuchOutputEndsATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	id := w.submit(order{workType: "chatty"})
	if f := w.entry(id, tasklog.Error).Message.Failure; f.Code != fault.ResourceLimitExceeded || f.Context["limit_name"] != "max_output" {
		t.Errorf("ended with %+v", f)
	}
	if st := w.state(id); st.Attempt != 1 || st.Void != 0 {
		t.Errorf("state %+v", st)
	}
}

// A task that took its time is not tried again, whatever its code allows.
func TestDurationEndsATask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	id := w.submit(order{workType: "brief"})
	if f := w.entry(id, tasklog.Error).Message.Failure; f.Code != fault.Timeout || !strings.Contains(f.Message, "max_duration_seconds") {
		t.Errorf("ended with %+v", f)
	}
}

// Without the broker, work that may be repeated is killed before its lease is over; other work goes on to its end.
func TestBrokerGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	short := func(c *intake.Config) { c.Lease, c.Report = time.Second, 100*time.Millisecond }
	again, once := w.door(), w.door()
	a := w.agent("one", short)
	b := w.agent("two", short)
	w.submit(order{workType: "gate", params: again.params()})
	w.submit(order{workType: "once", params: once.params()})
	seen := again.begun(1)
	unharmed := once.begun(1)
	w.server.Stop()
	w.eventually("the repeatable work is killed", func() bool { return !again.runs(seen) })
	if !once.runs(unharmed) {
		t.Error("work that may not be repeated was killed in an outage")
	}
	once.open()
	w.eventually("the other work is through", func() bool { return !once.runs(unharmed) })
	kept := func(a *agent) bool {
		list, err := filepath.Glob(filepath.Join(a.state, "attempts", "*.json"))
		if err != nil || len(list) != 1 {
			return false
		}
		text, err := os.ReadFile(list[0])
		return err == nil && strings.Contains(string(text), `"Outcome"`)
	}
	w.eventually("both outcomes are on disk", func() bool { return kept(a) && kept(b) })
	a.stop(intake.ErrAtOnce)
	b.stop(intake.ErrAtOnce)
}

func TestDrainLetsWorkFinish(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one")
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	stopped := make(chan struct{})
	go func() {
		a.stop(nil)
		close(stopped)
	}()
	w.eventually("the agent drains", func() bool {
		state, _ := a.State()
		return state == message.StateDraining
	})
	next := w.submit(order{workType: "talk"})
	d.open()
	w.entry(id, tasklog.Succeeded)
	<-stopped
	if got := w.kinds(next); len(got) != 1 {
		t.Errorf("a draining agent began new work: %v", got)
	}
}

func TestDrainEnds(t *testing.T) {
	t.Parallel()
	for workType, want := range map[string]tasklog.Kind{"gate": tasklog.AttemptFailed, "once": tasklog.Error} {
		t.Run(workType, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.agent("one", func(c *intake.Config) { c.Drain = time.Millisecond })
			d := w.door()
			id := w.submit(order{workType: workType, params: d.params()})
			seen := d.begun(1)
			a.stop(nil)
			d.gone(seen)
			e := w.entry(id, want)
			if f := e.Message.Failure; f.Code != fault.AgentUnavailable || !e.Message.Custom.Chiffon.Begun {
				t.Errorf("reported %+v", f)
			}
		})
	}
}

// What an earlier life has left is told before anything else, whatever step it died at.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	died := map[string]struct {
		workType string
		stored   bool // the started entry came into the log
		begun    bool
		cancel   bool
		want     []tasklog.Kind // behind submitted
	}{
		"before its started entry":          {"gate", false, false, false, nil},
		"after its started entry":           {"gate", true, false, false, []tasklog.Kind{tasklog.Started, tasklog.AttemptFailed}},
		"while it ran":                      {"gate", true, true, false, []tasklog.Kind{tasklog.Started, tasklog.AttemptFailed}},
		"while work of a single try ran":    {"once", true, true, false, []tasklog.Kind{tasklog.Started, tasklog.Error}},
		"while it ran and stop was wanted":  {"gate", true, true, true, []tasklog.Kind{tasklog.Started, tasklog.CancelRequested, tasklog.Cancelled}},
		"before it began, stop was wanted,": {"gate", true, false, true, []tasklog.Kind{tasklog.Started, tasklog.CancelRequested, tasklog.Cancelled}},
	}
	for name, test := range died {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.submit(order{workType: test.workType})
			if err := w.snatch(subject.Normal).Ack(); err != nil { // the earlier life took it
				t.Fatal(err)
			}
			dir := w.life(id, test.workType, test.stored, test.begun)
			if test.cancel {
				w.cancel(id, message.Cancel{By: "alice"})
			}
			a := w.agentIn("one", dir)
			w.eventually("nothing is in hand", func() bool { return len(a.Running()) == 0 })
			want := append([]tasklog.Kind{tasklog.Submitted}, test.want...)
			if got := w.kinds(id); !slices.Equal(got, want) {
				t.Errorf("log is %v, want %v", got, want)
			}
			if st := w.state(id); st.Void != 0 {
				t.Errorf("state %+v", st)
			}
		})
	}
}

// life leaves a state directory as a life does that died with an attempt, and the log as it made it.
func (w *world) life(id subject.TaskID, workType string, stored, begun bool) (dir string) {
	w.Helper()
	dir = filepath.Join(w.TempDir(), "state")
	s, err := spool.Open(dir)
	if err != nil {
		w.Fatal(err)
	}
	allowed := map[string]int{"gate": 2, "once": 1}[workType]
	m := message.New(agentType, "orchestrator", message.NewUUID(), message.NewUUID(),
		message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom = message.Custom{AgentID: "one", Chiffon: &message.Extension{Attempts: allowed}}
	d, err := tasklog.Write(tasklog.Started, id, subject.Event(id, "one"), m)
	if err != nil {
		w.Fatal(err)
	}
	d = d.At(w.state(id).TailSeq, 1, s.Boot)
	r := spool.Record{
		Task: id, Attempt: 1, Allowed: allowed, Boot: s.Boot, Entry: d.ID, Expect: d.Expect, WorkType: workType,
		Trace: message.NewUUID(), Request: message.NewUUID(), Begun: begun,
	}
	if stored {
		if r.Started, err = w.Append(w.Context(), d); err != nil {
			w.Fatal(err)
		}
	}
	if err := errors.Join(s.Put(r), s.Close()); err != nil {
		w.Fatal(err)
	}
	return dir
}

// The outcome of an earlier life is told under the id that it had, also when it was stored already.
func TestSpooledOutcomeIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]bool{"not told yet": false, "told, and not forgotten": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.submit(order{workType: "gate"})
			if err := w.snatch(subject.Normal).Ack(); err != nil {
				t.Fatal(err)
			}
			dir := w.life(id, "gate", true, true)
			st := w.state(id)
			m := message.New(agentType, "orchestrator", message.NewUUID(), message.NewUUID(),
				message.WorkResult{TaskID: id, Status: message.ResultSuccess, Output: "from the spool"})
			m.Custom.AgentID = "one"
			d, err := tasklog.Write(tasklog.Succeeded, id, subject.Event(id, "one"), m)
			if err != nil {
				t.Fatal(err)
			}
			d = d.At(st.TailSeq, 1, st.Boot)
			s, err := spool.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			records, err := s.Records()
			if err != nil || len(records) != 1 {
				t.Fatal(records, err)
			}
			records[0].Outcome = &d
			if err := errors.Join(s.Put(records[0]), s.Close()); err != nil {
				t.Fatal(err)
			}
			if stored {
				if _, err := w.Append(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			a := w.agentIn("one", dir)
			w.eventually("nothing is in hand", func() bool { return len(a.Running()) == 0 })
			end := w.entry(id, tasklog.Succeeded)
			if end.ID != d.ID || len(w.kinds(id)) != 3 || len(w.statuses(id)) != 0 {
				t.Errorf("end has id %s, want %s; log %v, statuses %d", end.ID, d.ID, w.kinds(id), len(w.statuses(id)))
			}
		})
	}
}
