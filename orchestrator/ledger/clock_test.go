package ledger_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/natstest"
	"chiffon/pkg/tasklog"
)

// What waits, waits by a clock that nobody sets: a wall clock that jumps by an hour makes no time in the queue shorter or
// longer, nor the delay of a retry.
func TestTimersAreMonotonic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	expires := time.Now().Add(time.Minute).UTC()
	id := w.submit(order{expires: &expires})
	w.folded(w.Ledger)
	loaded := ledger.New(w.Client, natstest.Log(t))
	if err := loaded.Load(bytes.NewReader(save(t, w.Ledger))); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*ledger.Ledger{"folded": w.Ledger, "loaded": loaded} {
		task, _ := l.Get(id)
		if off := task.Due.Sub(expires).Abs(); off > time.Second || !task.Expires.Equal(expires) {
			t.Errorf("%s: due %v, want %v", name, task.Due, expires)
		}
		for what, at := range map[string]time.Time{"Due": task.Due, "Seen": task.Seen} {
			if !strings.Contains(at.String(), " m=") { // how package time shows a monotonic reading
				t.Errorf("%s: %s is %v, by the wall clock alone", name, what, at)
			}
		}
	}
	now := time.Now()
	ahead := ledger.Task{Seen: now, State: tasklog.State{Attempt: 2, RetryAt: now.Add(time.Hour)}}
	if got := ahead.RetryIn(now); got != 2*time.Second {
		t.Errorf("RetryIn = %v for an hour ahead, want the delay of a third attempt", got)
	}
	if got := ahead.RetryIn(now.Add(2 * time.Second)); got != 0 {
		t.Errorf("RetryIn = %v two seconds later, want 0", got)
	}
}
