package intake_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/agentrunner/intake"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/tasklog"
)

// Junk that comes while the work runs does not keep its end from the log.
func TestFinish4RefusedAndStillMine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.page = 100
	w.agent("one")
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	w.junk(id, 1000, 10)
	d.open()
	w.entry(id, tasklog.Succeeded)
	if st := w.state(id); st.Void != 1000 || st.End != tasklog.Succeeded {
		t.Errorf("state %+v", st)
	}
}

// Work that ends by itself although stop is wanted tells what happened.
func TestFinish4RefusedAndCancelling(t *testing.T) {
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

// Success counts although the attempt was taken away, as long as nobody else has begun.
func TestFinish4TakenAwayForSilence(t *testing.T) {
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
func TestFinish5LateIsToldAsAStatus(t *testing.T) {
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
