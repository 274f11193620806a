package ledger_test

import (
	"fmt"
	"slices"
	"testing"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// silent takes a running attempt away for the silence of its holder.
func (w *world) silent(id subject.TaskID, attempt int) {
	w.Helper()
	m := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(),
		message.Failure{Code: 5001, Message: "no sign of life from a", Context: map[string]any{"attempted_retries": 0, "last_attempt": "2026-01-01T00:00:00Z"}})
	m.Custom.Chiffon = &message.Extension{Silent: true}
	w.says(tasklog.Write(tasklog.AttemptFailed, id, subject.Event(id, subject.Orchestrator), m))(attempt, 0)
}

// late tells of an outcome that came too late, so often.
func (w *world) late(id subject.TaskID, attempt, times int) {
	w.Helper()
	m := from(message.WorkStatus{TaskID: id, Status: message.StatusRunning, Step: &message.Step{Number: 1, Name: "late outcome: succeeded"}},
		&message.Extension{Attempt: attempt, Late: true})
	data, err := m.Encode()
	if err != nil {
		w.Fatal(err)
	}
	for range times {
		w.put(subject.Status(id, "a"), data)
	}
}

// words is an event in short.
func words(e view.Event) string {
	return fmt.Sprintf("%s %d %s>%s %s", e.Kind, e.Attempt, e.Writer, e.Holder, e.Cause)
}

// A history has every entry, void ones too, with its writer, cause and the holder after it, and what came too late.
func TestHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	w.start(id, 1)
	w.status(id, 1, 50, 3)
	w.late(id, 1, 1) // while it holds the task it can be late with nothing
	w.put(subject.Event(id, "mallory"), []byte("void"))
	w.silent(id, 1)
	w.late(id, 1, 2) // sent twice
	w.requeue(id, 1)
	w.start(id, 2)
	w.end(id, 2, 0)
	want := []string{
		"submitted 0 orchestrator> by admin, for any agent of type infra",
		"started 1 a>a attempt 1 of 3",
		" 0 mallory>a ",
		"attempt_failed 1 orchestrator>a 5001: no sign of life from a",
		"late 1 a> succeeded",
		"queued 1 orchestrator>a attempt 2, for any agent of type infra",
		"started 2 a>a attempt 2 of 3",
		"succeeded 2 a>a exit code 0",
	}
	for _, limit := range []int{100, 7, 4, 1} {
		var got []string
		var voids int
		after := uint64(0)
		for more := true; more; {
			var page []view.Event
			var err error
			if page, more, err = w.History(t.Context(), id, after, limit); err != nil {
				t.Fatal(err)
			}
			for _, e := range page {
				got = append(got, words(e))
				if e.Void != "" {
					voids++
				}
				if e.Kind != ledger.KindLate {
					at, err := ledger.ParseCursor(e.ID)
					if err != nil {
						t.Fatal(err)
					}
					after = at.Tasks
				}
				if len(e.Message) > 0 {
					t.Errorf("%s has a message", e.Kind)
				}
			}
		}
		if !slices.Equal(got, want) || voids != 1 {
			t.Errorf("%d a page: history = %d void of\n%q\nwant 1 of\n%q", limit, voids, got, want)
		}
	}
	log, err := w.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if late, err := w.Late(t.Context(), id, log); err != nil || len(late) != 1 || late[0].Cause != "succeeded" {
		t.Errorf("Late = %+v, %v", late, err)
	}
}

// Of a task that nobody has submitted there is no history.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if page, more, err := w.History(t.Context(), subject.TaskID(message.NewUUID()), 0, 10); len(page) != 0 || more || err != nil {
		t.Errorf("History = %v, %v, %v", page, more, err)
	}
}

// A grace that is longer than a lease is cut short by it where another attempt may follow.
func TestHistoryOfACancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for attempts, want := range map[int]string{
		3: "asked by admin (with INT, killed after 50 s at most, within its lease)",
		1: "asked by admin (with INT, killed after 50 s)",
	} {
		id := w.submit(order{})
		w.startOf(id, 1, attempts)
		w.cancel(id, 1, message.Cancel{By: "admin", Signal: "INT", GraceSeconds: 50})
		page, _, err := w.History(t.Context(), id, 0, 10)
		if err != nil || len(page) != 3 || page[2].Cause != want {
			t.Errorf("of %d attempts: %+v, %v, want %q", attempts, page, err, want)
		}
		w.folded(w.Ledger)
		_, events := w.shown(id, "", false)
		if i := slices.IndexFunc(events, func(e view.Event) bool { return e.Kind == "cancel_requested" }); i < 0 || events[i].Cause != want {
			t.Errorf("of %d attempts, watched: %+v, want %q", attempts, events, want)
		}
	}
}
