package intake_test

import (
	"log/slog"
	"testing"

	"chiffon/agentrunner/intake"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// One task at a time, from its submission to its end in the log: what everything around the work costs.
func BenchmarkNoop(b *testing.B) {
	w := newWorld(b)
	w.agent("one")
	ended := make(chan subject.TaskID)
	go func() {
		for m, err := range w.Tail(b.Context(), subject.TasksStream, 1) {
			if err != nil {
				return
			}
			if e := m.Entry(); e.Kind == tasklog.Succeeded {
				ended <- e.Subject.Task
			}
		}
	}()
	for b.Loop() {
		if id := w.submit(order{workType: "noop"}); <-ended != id {
			b.Fatal("another task ended")
		}
	}
}

// What somebody put on the request subjects by hand stands in front of real work for so long.
func BenchmarkJunkRequests(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b)
		w.junkRequests(10_000)
		id := w.submit(order{workType: "noop"})
		b.StartTimer()
		a := w.agent("one", func(c *intake.Config) { c.Log = slog.New(slog.DiscardHandler) })
		w.entry(id, tasklog.Succeeded)
		a.stop(nil)
	}
}

// From the word of a heartbeat to the end in the log, with all that the work had running gone.
func BenchmarkCancel(b *testing.B) {
	w := newWorld(b)
	a := w.agent("one", func(c *intake.Config) { c.Log = slog.New(slog.DiscardHandler) })
	for b.Loop() {
		b.StopTimer()
		d := w.door()
		id := w.submit(order{workType: "once", params: d.params()})
		d.begun(1)
		w.cancel(id, message.Cancel{})
		b.StartTimer()
		a.Control(message.HeartbeatReply{Consumers: consumers(), Cancel: []subject.TaskID{id}})
		w.entry(id, tasklog.Cancelled)
	}
}
