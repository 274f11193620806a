package dispatch

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// late has an agent tell of an outcome that came too late.
func (s *site) late(id subject.TaskID, agent subject.AgentID, attempt int) {
	s.Helper()
	m := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkStatus{
		TaskID: id, Status: message.StatusRunning, Step: &message.Step{Number: 1, Name: "late outcome: succeeded"},
	})
	m.Custom = message.Custom{AgentID: agent, Chiffon: &message.Extension{Attempt: attempt, Late: true, Outcome: "succeeded"}}
	data, err := m.Encode()
	if err != nil {
		s.Fatal(err)
	}
	s.put(subject.Status(id, agent), string(data))
}

// onRecord waits for so many things of a kind in the audit, and returns them.
func (s *site) onRecord(kind string, n int) (all []ledger.Odd) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	for m, err := range s.Tail(ctx, subject.AuditStream, 1) {
		if err != nil {
			s.Fatal(err)
		}
		var o ledger.Odd
		if m.Subject != subject.Audit(kind) || json.Unmarshal(m.Data, &o) != nil {
			continue
		}
		if all = append(all, o); len(all) == n {
			return all
		}
	}
	s.Fatalf("%d %s on record, want %d: %+v", len(all), kind, n, all)
	return nil
}

// lateOf waits until the views have so many late outcomes of a task.
func (s *site) lateOf(id subject.TaskID, n int) []ledger.Late {
	s.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		t, _ := s.ledger.Get(id)
		if len(t.Late) == n {
			return t.Late
		}
		if time.Now().After(end) {
			s.Fatalf("task %s has %+v, want %d late outcomes", id, t.Late, n)
		}
	}
}

// What came too late is on record once, whoever leads, and shown for as long as the task is; also what came while no
// orchestrator ran.
func TestLateOutcomesAreOnRecord(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	s := join(t, c, brisk)
	s.leads()
	id := s.submit()
	s.started(id, "a", 1, 2)
	s.until(id, "queued again", func(st tasklog.State) bool { return st.Phase == tasklog.PhaseQueued && st.Attempt == 1 })
	s.started(id, "b", 1, 2)
	s.ends(id)
	s.shows(id, tasklog.PhaseEnded)
	s.late(id, "c", 1) // never held it
	s.late(id, "a", 2) // did not hold that attempt
	s.late(id, "a", 1)
	s.late(id, "a", 1) // said twice
	if got := s.lateOf(id, 1)[0]; got.Agent != "a" || got.Attempt != 1 || got.Outcome != "succeeded" || got.Time.IsZero() {
		t.Errorf("late outcome %+v", got)
	}
	first := s.onRecord(ledger.OddLate, 1)[0]
	if first.Task != id || first.Writer != "a" || first.Attempt != 1 || first.Outcome != "succeeded" || first.V != 1 {
		t.Errorf("on record: %+v", first)
	}
	if err := s.ledger.Mark(t.Context(), s.ledger.StatusSeq()); err != nil {
		t.Fatal(err)
	}
	s.stop()

	s.late(id, "b", 2)
	next := join(t, c, brisk)
	next.leads()
	all := next.onRecord(ledger.OddLate, 2)
	if all[0] != first || all[1].Writer != "b" {
		t.Errorf("on record: %+v, want the first once and that of b", all)
	}
	task, _ := next.ledger.Get(id)
	if late := next.lateOf(id, 2); task.State.End != tasklog.Succeeded || !slices.ContainsFunc(late, func(l ledger.Late) bool { return l.Agent == "a" }) {
		t.Errorf("%s, late %+v", task.State.End, late)
	}
	if v := task.View(); len(v.Late) != 2 {
		t.Errorf("view.Task.Late = %+v", v.Late)
	}
}

// Entries that do not count are put on record, with their writer and why, but not all of a flood.
func TestVoidEntriesAreOnRecord(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	id := s.submit()
	s.shows(id, tasklog.PhaseQueued)
	for range voidsOfOne + 20 {
		s.put(subject.Event(id, "flood"), "{}")
	}
	s.put(subject.Event(id, "other"), "{}")
	all := s.onRecord(ledger.OddVoid, voidsOfOne+1)
	count := map[string]int{}
	for _, o := range all {
		count[o.Writer]++
		if o.Task != id || o.Seq == 0 || o.Why == "" || o.ID == "" {
			t.Fatalf("on record: %+v", o)
		}
	}
	if count["flood"] != voidsOfOne || count["other"] != 1 || all[voidsOfOne].Omitted != 20 {
		t.Errorf("on record: %v, the last %+v", count, all[voidsOfOne])
	}
}

func TestVoidsOfAnHour(t *testing.T) {
	t.Parallel()
	var l limit
	kept := 0
	for i := range 2 * voidsInAll {
		if _, ok := l.allow(string(rune('a'+i%26)), noon); ok {
			kept++
		}
	}
	if kept != voidsInAll {
		t.Errorf("%d in an hour, want %d", kept, voidsInAll)
	}
	if omitted, ok := l.allow("z", noon.Add(time.Hour)); !ok || omitted != voidsInAll {
		t.Errorf("an hour later: %v, %d omitted, want %d", ok, omitted, voidsInAll)
	}
}
