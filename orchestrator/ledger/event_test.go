package ledger_test

import (
	"bytes"
	"strings"
	"testing"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// Void entries are shown, but what they carry is not kept for them: anybody may write a great deal of it.
func TestWatchKeepsLittleOfVoidEntries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	readable, err := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkStatus{
		TaskID: id, Status: message.StatusRunning, Step: &message.Step{Number: 1, Name: "x", Output: strings.Repeat("x", 900_000), OutputChunk: "bytes 0-900000"},
	}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	junk := bytes.Repeat([]byte("x"), 900_000)
	for range 3 {
		w.put(subject.Event(id, "mallory"), readable)
		w.put(subject.Event(id, "mallory"), junk)
	}
	w.put(subject.Event(id, "mallory"), readable)
	w.put(subject.Event(id, "mallory"), readable)
	w.folded(w.Ledger)
	_, events := w.shown(id, "", false)
	voids, carried := 0, 0
	for _, ev := range events {
		if ev.Void != "" {
			voids++
			carried += len(ev.Message)
		}
	}
	if voids != 8 || carried < len(readable) || carried > 4<<20 {
		t.Errorf("%d void entries are shown with %d bytes", voids, carried)
	}
	log, err := w.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range log[1:] {
		if e.Data != nil || e.Err == nil {
			t.Errorf("entry %d is kept with %d bytes, error %v", e.Seq, len(e.Data), e.Err)
		}
	}
}

// The reason of a void entry does not say its kind again: the event does.
func TestVoidSaysItsKindOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	w.start(id, 1)
	w.start(id, 2)
	w.folded(w.Ledger)
	_, events := w.shown(id, "", false)
	last := events[len(events)-1]
	if last.Kind != "started" || last.Void != "by a is refused while the task is running: no rule allows it" {
		t.Errorf("%s is void: %q", last.Kind, last.Void)
	}
}
