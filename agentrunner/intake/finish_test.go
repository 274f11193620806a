package intake_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/agentrunner/intake"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
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
	c := failed.Message.Failure.Context
	if used, ok := c["required"].(int); c["limit_name"] != "max_memory_mb" || c["available"] != 16 || !ok || used < 16 {
		t.Errorf("attempt failed with the context %v", c)
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

// The outcome lies on disk, with the id and the expectation that it is told with, before it is told, and until it is.
func TestFinish1OutcomeIsKeptBeforeItIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) { c.Report = 100 * time.Millisecond })
	d := w.door()
	id := w.submit(order{workType: "once", params: d.params()})
	d.begun(1)
	started := w.entry(id, tasklog.Started)
	w.server.Stop()
	d.open()
	w.eventually("the outcome is on disk", func() bool { return a.record(t, id).Outcome != nil })
	a.stop(intake.ErrAtOnce)
	if o := a.record(t, id).Outcome; o == nil || o.Kind != tasklog.Succeeded || o.Expect != started.Seq || o.ID == "" {
		t.Errorf("kept is %+v, want a success that expects %d", o, started.Seq)
	}
}

// Whoever sees the end finds all of its output stored.
func TestFinish2OutputBeforeTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	for range 5 {
		id := w.submit(order{workType: "big"})
		end := w.entry(id, tasklog.Succeeded)
		var size int64
		all := w.statuses(id)
		for _, s := range all {
			if s.Payload.Step != nil {
				p, err := s.Payload.Step.Bytes()
				if err != nil {
					t.Fatal(err)
				}
				size += int64(len(p))
			}
		}
		if x := end.Message.Custom; len(all) != x.Chiffon.StatusCount || size != x.OutputBytes {
			t.Errorf("%d statuses with %d bytes are stored at the end, it says %d and %d", len(all), size, x.Chiffon.StatusCount, x.OutputBytes)
		}
	}
}

// An end follows the started entry, or the cancel_requested that stopped the work.
func TestFinish3ExpectsWhatWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) { c.Lease = time.Hour })
	id := w.submit(order{workType: "talk"})
	if end := w.entry(id, tasklog.Succeeded); end.Expect != w.entry(id, tasklog.Started).Seq {
		t.Errorf("end expects %d", end.Expect)
	}
	d := w.door()
	id = w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	w.cancel(id, message.Cancel{})
	a.Control(message.HeartbeatReply{Cancel: []subject.TaskID{id}})
	if end := w.entry(id, tasklog.Cancelled); end.Expect != w.entry(id, tasklog.CancelRequested).Seq {
		t.Errorf("end expects %d", end.Expect)
	}
}

// A cancel that the runner has not seen: what would have been tried again is an end now, and says who ended the work.
func TestFinish4NothingIsRetriedAfterACancel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		workType string
		end      func(*agent, door)
		want     tasklog.Kind
	}{
		"it failed by itself":   {"glutton", func(_ *agent, d door) { d.open() }, tasklog.Failed},
		"this runner ended it":  {"gate", func(a *agent, _ door) { a.stop(intake.ErrAtOnce) }, tasklog.Cancelled},
		"it ended well instead": {"gate", func(_ *agent, d door) { d.open() }, tasklog.Succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.agent("one", func(c *intake.Config) { c.Lease = time.Hour })
			d := w.door()
			id := w.submit(order{workType: test.workType, params: d.params()})
			d.begun(1)
			w.cancel(id, message.Cancel{By: "alice"})
			test.end(a, d)
			w.entry(id, test.want)
			want := []tasklog.Kind{tasklog.Submitted, tasklog.Started, tasklog.CancelRequested, test.want}
			if got := w.kinds(id); !slices.Equal(got, want) || w.state(id).Void != 0 {
				t.Errorf("log is %v, want %v", got, want)
			}
		})
	}
}

// A late outcome is sent until it is stored; until then the attempt is in hand, and its record on disk.
func TestFinish6KeptUntilItIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{workType: "gate"})
	if err := w.snatch(subject.Normal).Ack(); err != nil {
		t.Fatal(err)
	}
	dir := w.life(id, "gate", true, true)
	w.outcome(dir, id, message.WorkResult{TaskID: id, Status: message.ResultCancelled, ExitCode: 143})
	w.revoke(id)
	if _, err := w.Request(t.Context(), "$JS.API.STREAM.DELETE."+subject.StatusStream, nil); err != nil {
		t.Fatal(err)
	}
	a := w.agentIn("one", dir)
	w.eventually("the late outcome is on disk", func() bool { return a.record(t, id).Late != nil })
	if len(a.Running()) != 1 {
		t.Error("a runner that has a late outcome to tell holds nothing")
	}
	if err := w.Ensure(t.Context(), broker.DefaultLimits, 1); err != nil {
		t.Fatal(err)
	}
	x := w.late(id).Custom
	if c := x.Chiffon; x.AgentID != "one" || c.Attempt != 1 || c.Outcome != string(tasklog.Cancelled) || *c.ExitCode != 143 || x.OutputBytes != 7 || c.StatusCount != 3 {
		t.Errorf("late status says %+v, %+v", x, x.Chiffon)
	}
	w.eventually("nothing is in hand", func() bool { return len(a.Running()) == 0 })
	if _, err := os.Stat(filepath.Join(a.state, "attempts", string(id)+".json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its record: %v", err)
	}
}
