package intake_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// What an earlier life has left is told before anything else, whatever step it died at.
func TestStartTellsWhatBecameOfAttempts(t *testing.T) {
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

// The outcome of an earlier life is told under the id that it had, also when it was stored already.
func TestStartTellsTheVerySameOutcome(t *testing.T) {
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
			d := w.outcome(dir, id, message.WorkResult{TaskID: id, Status: message.ResultSuccess, Output: "from the spool"})
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

// That the journal says it was ours entitles to report, not to run: also when the request comes again.
func TestStartNeverRunsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	m := w.snatch(subject.Normal)
	dir := w.life(id, "gate", true, false) // it died between the started entry and its acknowledgement
	a := w.agentIn("one", dir)
	if err := m.Nak(); err != nil {
		t.Fatal(err)
	}
	w.entry(id, tasklog.AttemptFailed)
	w.settled(subject.Normal)
	w.eventually("nothing is in hand", func() bool { return len(a.Running()) == 0 })
	want := []tasklog.Kind{tasklog.Submitted, tasklog.Started, tasklog.AttemptFailed}
	if got := w.kinds(id); !slices.Equal(got, want) {
		t.Errorf("log is %v, want %v", got, want)
	}
	if _, err := os.Stat(d.path + ".up"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the work was begun: %v", err)
	}
}
