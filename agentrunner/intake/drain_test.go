package intake_test

import (
	"log/slog"
	"testing"
	"time"

	"chiffon/agentrunner/intake"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

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

// What the orchestrator wants of an agent is told back at once, as it changes State: views show the agent's own word.
func TestControlIsToldBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	told := 0
	a := w.agent("one", func(c *intake.Config) { c.Changed = func() { told++ } })
	for i, step := range []struct {
		reply message.HeartbeatReply
		state string
		told  int
	}{
		{message.HeartbeatReply{}, message.StateReady, 0},
		{message.HeartbeatReply{Drain: true}, message.StateDraining, 1},
		{message.HeartbeatReply{Drain: true, Notice: "power"}, message.StateDraining, 1},
		{message.HeartbeatReply{}, message.StateReady, 2},
	} {
		a.Control(step.reply)
		if state, _ := a.State(); state != step.state || told != step.told {
			t.Errorf("step %d: %s, told %d times, want %s and %d", i, state, told, step.state, step.told)
		}
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

// A drain that the orchestrator wants takes no new work until an answer says so no more; what runs goes on, and the agent
// stays.
func TestDrainByTheOrchestrator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) { c.Slots = 2 })
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	a.Control(message.HeartbeatReply{Consumers: consumers(), Drain: true})
	if state, _ := a.State(); state != message.StateDraining {
		t.Errorf("state %q", state)
	}
	next := w.submit(order{workType: "talk"})
	w.eventually("the request was handed out", func() bool { return w.waiting(subject.Normal).Delivered.Consumer == 2 })
	d.open()
	w.entry(id, tasklog.Succeeded)
	if got := w.kinds(next); len(got) != 1 {
		t.Errorf("log of the next is %v while the agent is drained", got)
	}
	a.Control(message.HeartbeatReply{Consumers: consumers()})
	w.entry(next, tasklog.Succeeded)
}

func TestDrainUntilStopsWhatStillRuns(t *testing.T) {
	t.Parallel()
	for workType, want := range map[string]tasklog.Kind{"gate": tasklog.AttemptFailed, "once": tasklog.Error} {
		t.Run(workType, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := w.agent("one")
			d := w.door()
			id := w.submit(order{workType: workType, params: d.params()})
			seen := d.begun(1)
			until := time.Now().Add(300 * time.Millisecond)
			a.Control(message.HeartbeatReply{Drain: true, DrainUntil: &until})
			e := w.entry(id, want)
			d.gone(seen)
			if e.Message.Failure.Code != fault.AgentUnavailable || e.Time.Before(until) {
				t.Errorf("ended at %s with %+v, want 5002 after %s", e.Time, e.Message.Failure, until)
			}
			a.Control(message.HeartbeatReply{Drain: true, DrainUntil: &until})
			a.Control(message.HeartbeatReply{Consumers: consumers()})
			w.entry(w.submit(order{workType: "talk"}), tasklog.Succeeded)
		})
	}
}

// A drain without an end, and one whose end was taken back, stop nothing.
func TestDrainUntilIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one")
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	until := time.Now().Add(300 * time.Millisecond)
	a.Control(message.HeartbeatReply{Drain: true, DrainUntil: &until})
	a.Control(message.HeartbeatReply{Drain: true})
	w.eventually("its time is over", func() bool { return time.Since(until) > 100*time.Millisecond })
	d.open()
	w.entry(id, tasklog.Succeeded)
}

// A pause ends with an answer that does not speak of it, never by the clock alone.
func TestPauseEndsByAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) { c.Pull = 50 * time.Millisecond })
	until := time.Now().Add(100 * time.Millisecond)
	a.Control(message.HeartbeatReply{Consumers: consumers(), PausedUntil: &until})
	w.eventually("the time of the pause is over, and no request for work stands at the broker", func() bool {
		return time.Now().After(until) && w.waiting(subject.Normal).NumWaiting == 0
	})
	id := w.submit(order{workType: "talk"})
	a.Refresh() // as when work types are read again
	if got := w.waiting(subject.Normal); got.NumWaiting != 0 || got.NumAckPending != 0 {
		t.Errorf("a paused agent asks for work: %+v", got)
	}
	a.Control(message.HeartbeatReply{Consumers: consumers()})
	w.entry(id, tasklog.Succeeded)
}

func TestNoticeIsLoggedWhenItChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var said warnings
	a := w.agent("one", func(c *intake.Config) { c.Log = slog.New(slog.NewTextHandler(&said, nil)) })
	until := time.Now().Add(time.Hour)
	for _, r := range []message.HeartbeatReply{
		{Drain: true, Notice: "new disk"}, {Drain: true, Notice: "new disk"}, {Drain: true, Notice: "two new disks"},
		{PausedUntil: &until, Notice: "five failures"}, {PausedUntil: &until, Notice: "five failures"}, {}, {},
	} {
		a.Control(r)
	}
	for text, want := range map[string]int{"\"new disk\"": 1, "two new disks": 1, "five failures": 1, "work taken again": 1} {
		if n := said.lines(text); n != want {
			t.Errorf("%s was said %d times, want %d", text, n, want)
		}
	}
}

// A second wish to stop ends a drain: the work gets a short grace, then it is killed.
func TestStopNow(t *testing.T) {
	t.Parallel()
	for workType, want := range map[string]tasklog.Kind{"wide": tasklog.AttemptFailed, "wide-once": tasklog.Error} {
		t.Run(workType, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			now := make(chan struct{})
			a := w.agent("one", func(c *intake.Config) { c.Drain, c.Now, c.Lease = time.Hour, now, time.Hour })
			d := w.door()
			id := w.submit(order{workType: workType, params: d.params()})
			seen := d.begun(2)
			go func() {
				w.eventually("it drains", func() bool { state, _ := a.State(); return state == message.StateDraining })
				close(now)
			}()
			began := time.Now()
			a.stop(nil)
			if d.gone(seen); time.Since(began) > 40*time.Second {
				t.Errorf("it took %s", time.Since(began))
			}
			if f := w.entry(id, want).Message.Failure; f.Code != fault.AgentUnavailable {
				t.Errorf("reported %+v", f)
			}
		})
	}
}
