package intake_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/intake"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

func TestCancelStopsTheWork(t *testing.T) {
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

func TestConfirmLostStopsTheWork(t *testing.T) {
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

// A read of the log that shows nothing newer is the lease: work goes on for as many leases as it takes, without an
// orchestrator.
func TestConfirmHeldKeepsTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lease := 300 * time.Millisecond
	w.agent("one", func(c *intake.Config) { c.Lease = lease })
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	began := time.Now()
	w.eventually("five leases have passed", func() bool { return time.Since(began) > 5*lease })
	d.open()
	w.entry(id, tasklog.Succeeded)
}

// What cannot be read stands where an orchestrator writes: the whole log decides.
func TestConfirmUnreadable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then func(*world, subject.TaskID)
		want tasklog.Kind
	}{
		"still mine": {func(*world, subject.TaskID) {}, tasklog.Succeeded},
		"cancelling": {func(w *world, id subject.TaskID) { w.cancel(id, message.Cancel{By: "alice"}); w.orchestratorJunk(id) }, tasklog.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			lease := 500 * time.Millisecond
			w.agent("one", func(c *intake.Config) { c.Lease = lease })
			d := w.door()
			id := w.submit(order{workType: "gate", params: d.params()})
			d.begun(1)
			w.orchestratorJunk(id)
			test.then(w, id)
			if test.want == tasklog.Succeeded {
				began := time.Now()
				w.eventually("three leases have passed", func() bool { return time.Since(began) > 3*lease })
				d.open()
			}
			w.entry(id, test.want)
		})
	}
}

// orchestratorJunk puts what nobody can read where only an orchestrator may write.
func (w *world) orchestratorJunk(id subject.TaskID) {
	w.Helper()
	r, err := w.Send(subject.Event(id, subject.Orchestrator), []byte("junk"))
	if err == nil {
		err = r.Wait(w.Context())
	}
	if err != nil {
		w.Fatal(err)
	}
}

// The whole tree is gone when cancelled is written, also a child that has left the group and ignores the signal.
func TestCancelEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		workType string
		cancel   message.Cancel
		told     bool // the program itself ended by the signal
		exit     int
	}{
		"a tree that ignores the signal": {"wide", message.Cancel{GraceSeconds: 1}, false, 137},
		"the signal that was wanted":     {"wide-once", message.Cancel{GraceSeconds: 1, Signal: "SIGUSR2"}, true, 7},
		"killed at once":                 {"wide-once", message.Cancel{GraceSeconds: 60, Signal: "SIGKILL", Force: true}, false, 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.agent("one", func(c *intake.Config) { c.Lease = time.Hour })
			d := w.door()
			id := w.submit(order{workType: test.workType, params: d.params()})
			seen := d.begun(2)
			w.cancel(id, test.cancel)
			a.Control(message.HeartbeatReply{Cancel: []subject.TaskID{id}})
			end := w.entry(id, tasklog.Cancelled)
			d.gone(seen)
			_, err := os.Stat(d.path + ".told")
			if told := err == nil; told != test.told || end.Message.Result.ExitCode != test.exit {
				t.Errorf("told is %v, exit code %d, want %v and %d", told, end.Message.Result.ExitCode, test.told, test.exit)
			}
		})
	}
}

// Work that may be repeated has the grace of its work type, where its lease leaves it that.
func TestCancelGraceOfTheWorkType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) { c.Lease = time.Hour })
	d := w.door()
	id := w.submit(order{workType: "hasty", params: d.params()})
	seen := d.begun(2)
	w.cancel(id, message.Cancel{})
	a.Control(message.HeartbeatReply{Cancel: []subject.TaskID{id}})
	asked := time.Now()
	w.entry(id, tasklog.Cancelled)
	d.gone(seen)
	if took := time.Since(asked); took >= child.DefaultGrace {
		t.Errorf("killed after %v, want 1 s", took)
	}
}

// A later cancel reaches a runner that is stopping the work already: sooner, or by another signal.
func TestCancelAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]message.Cancel{
		"a shorter grace": {GraceSeconds: 1, Force: true},
		"another signal":  {GraceSeconds: 3600, Signal: "SIGKILL", Force: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.agent("one", func(c *intake.Config) { c.Lease = 4 * time.Hour })
			d := w.door()
			id := w.submit(order{workType: "wide-once", params: d.params()})
			seen := d.begun(2)
			w.cancel(id, message.Cancel{GraceSeconds: 3600})
			a.Control(message.HeartbeatReply{Cancel: []subject.TaskID{id}})
			w.cancel(id, again)
			a.Control(message.HeartbeatReply{Cancel: []subject.TaskID{id}})
			end := w.entry(id, tasklog.Cancelled)
			d.gone(seen)
			if st := w.state(id); st.Void != 0 || end.Message.Result.ExitCode != 137 {
				t.Errorf("state %+v, result %+v", st, end.Message.Result)
			}
		})
	}
}
