package ledger_test

import (
	"slices"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
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
