package intake_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
