package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// litter puts messages that are no entries on a task's log.
func (s *site) litter(subj string, n, size int) {
	s.Helper()
	var all []broker.Receipt
	for range n {
		r, err := s.Send(subj, bytes.Repeat([]byte("x"), size))
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := r.Wait(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

// pages asks for a log as runners do, and returns it with the size of its largest page.
func (s *site) pages(id subject.TaskID) (entries []tasklog.Entry, largest int) {
	s.Helper()
	for from := uint64(0); ; {
		answer := s.ask(subject.Call("a", "get"), fmt.Sprintf(`{"task_id":%q,"from":%d}`, id, from))
		largest = max(largest, len(answer))
		var r broker.LogReply
		if err := json.Unmarshal(answer, &r); err != nil || r.Error != nil {
			s.Fatalf("get from %d = %+v, %v", from, r.Error, err)
		}
		for _, m := range r.Messages {
			entries = append(entries, m.Entry())
		}
		if r.Next == 0 {
			return entries, largest
		}
		if r.Next <= from {
			s.Fatalf("next is %d after %d", r.Next, from)
		}
		from = r.Next
	}
}

// What anybody puts on a log makes no answer too large to be sent, and adds up to the same.
func TestGetPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, c := range map[string]struct{ n, size int }{"large": {6, 900_000}, "many": {12_000, 10}} {
		id := s.submit(`{}`)
		s.litter(subject.Event(id, "evil"), c.n, c.size)
		whole, err := s.Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		entries, largest := s.pages(id)
		if largest > 600<<10 {
			t.Errorf("%s: a page has %d bytes", name, largest)
		}
		got, want := tasklog.Fold(entries), tasklog.Fold(whole)
		if len(entries) != c.n+1 || got.Phase != tasklog.PhaseQueued || got.Void != c.n || got.TailSeq != want.TailSeq {
			t.Errorf("%s: %d entries add up to %+v, want %+v", name, len(entries), got, want)
		}
	}
}

// Entries that count may be as large as a message may be: they are cut down, and count all the same.
func TestGetLargeEntries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.submit(`{}`)
	large := strings.Repeat("x", 900_000)
	custom := message.Custom{AgentID: "a", Chiffon: &message.Extension{Attempts: 3, Host: large}}
	start := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	start.Custom = custom
	failed := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(),
		message.FailureOf(fault.New(fault.Timeout, "%s", large).With("task_id", string(id))))
	failed.Custom = custom
	first, err := tasklog.Write(tasklog.Started, id, subject.Event(id, "a"), start)
	if err != nil {
		t.Fatal(err)
	}
	second, err := tasklog.Write(tasklog.AttemptFailed, id, subject.Event(id, "a"), failed)
	if err != nil {
		t.Fatal(err)
	}
	tail := uint64(1)
	for _, d := range []tasklog.Draft{first, second} {
		if tail, err = s.Append(t.Context(), d.At(tail, 1, 3)); err != nil {
			t.Fatal(err)
		}
	}
	entries, largest := s.pages(id)
	st := tasklog.Fold(entries)
	if st.Phase != tasklog.PhaseFailed || st.Allowed != 3 || st.Code != fault.Timeout || st.Void != 0 || largest > 100<<10 {
		t.Errorf("%d bytes add up to %+v", largest, st)
	}
}
