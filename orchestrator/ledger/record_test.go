package ledger_test

import (
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

// A ledger that cannot read the record, as when the broker goes right then, tries again.
func TestRecordIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	w.start(id, 1)
	if _, err := w.Request(t.Context(), "$JS.API.STREAM.DELETE."+subject.AuditStream, nil); err != nil {
		t.Fatal(err)
	}
	l, _ := w.run(ledger.New(w.Client, natstest.Log(t)))
	w.folded(l)
	if err := w.Ensure(t.Context(), broker.DefaultLimits, 1); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		w.status(id, 1, 30, 1)
		task, _ := l.Get(id)
		if task.Percent == 30 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("progress is %d, want 30", task.Percent)
		}
		<-time.After(20 * time.Millisecond)
	}
}
