package intake_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"chiffon/agentrunner/host"
	"chiffon/agentrunner/intake"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// What this host cannot do is handed back without an entry, is shown, and does not stand in the way of what it can.
func TestRefusalBeforeTheStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		order order
		code  fault.Code
		says  string
	}{
		"more memory than there is":       {order{workType: "talk", hints: &message.Hints{MaxMemoryMB: 1001}}, fault.ResourceLimitExceeded, "max_memory_mb"},
		"more GPU memory than there is":   {order{workType: "talk", hints: &message.Hints{GPUVRAMMB: 501}}, fault.ResourceLimitExceeded, "gpu_vram_mb"},
		"more GPU memory than is free":    {order{workType: "talk", hints: &message.Hints{GPUVRAMMB: 301}}, fault.ResourceLimitExceeded, "300 can be had now"},
		"a work type that is not offered": {order{workType: "dance"}, fault.UnsupportedWorkType, "dance"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var told atomic.Int32
			a := w.agent("one", func(c *intake.Config) {
				c.Lease = 3 * time.Second
				c.Changed = func() { told.Add(1) }
				c.Room = func(context.Context) host.Room { return host.Room{MemoryMB: 1000, VRAMMB: 500, VRAMFreeMB: 300} }
			})
			test.order.priority = subject.Critical
			id := w.submit(test.order)
			w.entry(w.submit(order{workType: "talk", hints: &message.Hints{MaxMemoryMB: 1000, GPUVRAMMB: 300}}), tasklog.Succeeded)
			var all []message.Refusal
			w.eventually("it is refused", func() bool { all = a.Refused(); return len(all) == 1 })
			if r := all[0]; r.TaskID != id || r.Code != test.code || !strings.Contains(r.Message, test.says) {
				t.Errorf("refused %+v, want %d with %q", r, int(test.code), test.says)
			}
			w.eventually("it comes again", func() bool { return w.waiting(subject.Critical).NumRedelivered > 0 })
			if n := told.Load(); n != 1 {
				t.Errorf("the orchestrator was told %d times of one refusal", n)
			}
			if got := w.kinds(id); !slices.Equal(got, []tasklog.Kind{tasklog.Submitted}) {
				t.Errorf("log is %v", got)
			}
			st := w.state(id)
			m := message.New("orchestrator", agentType, message.NewUUID(), message.NewUUID(), message.WorkResult{TaskID: id, Status: message.ResultCancelled})
			w.append(tasklog.Write(tasklog.Cancelled, id, subject.Event(id, subject.Orchestrator), m))(st.TailSeq, st.Attempt)
			if err := w.PurgeTask(t.Context(), subject.TasksStream, id, 0); err != nil {
				t.Fatal(err)
			}
			w.eventually("a lease later it is not shown any more", func() bool { return len(a.Refused()) == 0 })
		})
	}
}

// Memory that running work may use is not promised twice.
func TestMemoryIsPromisedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) {
		c.Slots = 3
		c.Room = func(context.Context) host.Room { return host.Room{MemoryMB: 1000} }
	})
	d := w.door()
	first := w.submit(order{workType: "gate", params: d.params(), hints: &message.Hints{MaxMemoryMB: 600}})
	d.begun(1)
	second := w.submit(order{workType: "talk", hints: &message.Hints{MaxMemoryMB: 600}})
	var all []message.Refusal
	w.eventually("the second is refused", func() bool { all = a.Refused(); return len(all) == 1 })
	if r := all[0]; r.TaskID != second || !strings.Contains(r.Message, "400 can be had now") {
		t.Errorf("refused %+v", r)
	}
	w.entry(w.submit(order{workType: "talk", hints: &message.Hints{MaxMemoryMB: 400}}), tasklog.Succeeded)
	w.entry(w.submit(order{workType: "talk"}), tasklog.Succeeded)
	d.open()
	w.entry(first, tasklog.Succeeded)
	w.entry(second, tasklog.Succeeded)
	if r := a.Refused(); len(r) != 0 {
		t.Errorf("still refused: %+v", r)
	}
}
