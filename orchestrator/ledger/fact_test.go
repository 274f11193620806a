package ledger_test

import (
	"slices"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// Facts tell of what comes, once each, and not of what was there before.
func TestFactsAreOfNewEntriesOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	past := w.submit(order{})
	w.start(past, 1)
	w.folded(w.Ledger)
	w.stop()
	l := ledger.New(w.Client, natstest.Log(t))
	facts := l.Facts(t.Context())
	_, _ = w.run(l)
	w.folded(l)
	w.fail(past, 1)
	w.requeue(past, 1)
	w.start(past, 2)
	w.end(past, 2, 0)
	w.put(subject.Event(past, "stranger"), []byte("{}"))
	id := w.submit(order{})
	w.put(subject.Event(id, "stranger"), []byte("{}"))
	w.folded(l)
	want := []ledger.FactKind{ledger.FactFailed, ledger.FactStarted, ledger.FactEnded, ledger.FactVoid, ledger.FactVoid}
	var got []ledger.FactKind
	for range want {
		select {
		case f := <-facts:
			got = append(got, f.Kind)
			if f.Agent == "" || f.Seq == 0 || f.Time.IsZero() || f.Task == "" ||
				(f.Kind == ledger.FactFailed) != (f.Code != 0) || (f.Kind == ledger.FactVoid) != (f.Why != "") {
				t.Errorf("%+v lacks something, or has too much", f)
			}
		case <-time.After(patience):
			t.Fatalf("facts = %v, want %v", got, want)
		}
	}
	if !slices.Equal(got, want) || len(facts) != 0 {
		t.Errorf("facts = %v and %d more, want %v", got, len(facts), want)
	}
}

// An agent that ends work because the task's own time is over does what it was asked to. What it gives up for want of a
// lease is another matter, with the same code.
func TestTimeThatIsOverIsNoFaultOfTheAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seconds int // max_duration_seconds
		cancel  *message.Cancel
		code    fault.Code
		want    ledger.FactKind
	}{
		"max_duration_seconds is over":           {seconds: 1, code: fault.Timeout, want: ledger.FactEnded},
		"its lease was lost before":              {seconds: 60, code: fault.Timeout, want: ledger.FactFailed},
		"its lease was lost, and time unlimited": {code: fault.Timeout, want: ledger.FactFailed},
		"it could not do it, in whatever time":   {seconds: 1, code: fault.AgentUnavailable, want: ledger.FactFailed},
		"after a deadline":                       {cancel: &message.Cancel{By: subject.Orchestrator, Deadline: true}, code: fault.Timeout, want: ledger.FactEnded},
		"after somebody's cancel":                {cancel: &message.Cancel{By: "admin"}, code: fault.Timeout, want: ledger.FactFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			id := w.submit(order{limit: c.seconds, unlimited: c.seconds == 0})
			w.start(id, 1)
			if c.cancel != nil {
				w.cancel(id, 1, *c.cancel)
			}
			w.folded(w.Ledger)
			facts := w.Facts(t.Context())
			m := from(message.Failure{Code: c.code, Message: "over", Context: map[string]any{}}, nil)
			w.says(tasklog.Write(tasklog.Error, id, subject.Event(id, "a"), m))(1, 1)
			select {
			case f := <-facts:
				if f.Kind != c.want || (f.Kind == ledger.FactFailed) != (f.Code == c.code) {
					t.Errorf("fact %+v, want it %s", f, c.want)
				}
			case <-time.After(patience):
				t.Fatal("nothing is said of the agent")
			}
		})
	}
}
