package intake_test

import (
	"bytes"
	"slices"
	"testing"

	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A request that comes again after its task has ended does nothing but be acknowledged.
func TestDelivery6SettledRequestIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{workType: "talk"})
	m := w.snatch(subject.Normal) // somebody has the message, says nothing, and gives it back later
	a := w.agent("one")
	w.requestAgainAndRun(id)
	if err := m.Nak(); err != nil {
		t.Fatal(err)
	}
	w.settled(subject.Normal)
	a.stop(nil)
	want := []tasklog.Kind{tasklog.Submitted, tasklog.Queued, tasklog.Started, tasklog.Succeeded}
	if got := w.kinds(id); !slices.Equal(got, want) {
		t.Errorf("log is %v, want %v", got, want)
	}
}

// junk puts entries that do not count on the log of a task.
func (w *world) junk(id subject.TaskID, n, size int) {
	w.Helper()
	data := bytes.Repeat([]byte("x"), size)
	for k := range n {
		last, err := w.Send(subject.Event(id, "vandal"), data)
		if err != nil {
			w.Fatal(err)
		}
		if k%100 == 99 || k == n-1 || size > 10_000 {
			if err := last.Wait(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// A log that does not fit one answer is folded page by page.
func TestDelivery5VoidEntriesBehindTheRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ count, size, page int }{
		"small pages": {5, 10, 1},
		"many":        {3000, 10, 512},
		"large":       {6, 900_000, 512},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.page = test.page
			id := w.submit(order{workType: "talk"})
			w.junk(id, test.count, test.size)
			w.agent("one")
			w.entry(id, tasklog.Succeeded)
			if st := w.state(id); st.Void != test.count || st.Attempt != 1 {
				t.Errorf("state %+v", st)
			}
		})
	}
}
