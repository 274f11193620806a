package intake_test

import (
	"testing"

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
