package dispatch

import (
	"testing"
	"time"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// What was put under an id that no task has is removed in time; what stands before a task's first entry is not.
func TestJunkIsRemoved(t *testing.T) {
	t.Parallel()
	cfg := brisk
	cfg.KeepJunk = 300 * time.Millisecond
	s := newSite(t, cfg)
	s.leads()
	o := order()
	squatted := tasklog.TaskID(o.By, o.Request.RequestID)
	s.put(subject.Event(squatted, "evil"), "junk")
	if _, _, err := s.d.Submit(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	junk := subject.TaskID(message.NewUUID())
	s.put(subject.Event(junk, "evil"), "junk")
	s.put(subject.Event(junk, "evil"), "junk")
	// And what stood before a first entry is removed while that is being stored: the task is there all the same.
	late := order()
	raced := tasklog.TaskID(late.By, late.Request.RequestID)
	s.put(subject.Event(raced, "evil"), "junk")
	if _, _, err := s.d.Submit(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if err := s.PurgeTask(t.Context(), subject.TasksStream, raced, s.state(raced).RequestSeq-1); err != nil {
		t.Fatal(err)
	}
	if st := s.state(raced); st.Phase != tasklog.PhaseQueued || st.Void != 0 {
		t.Errorf("the task is %+v, want queued with nothing before", st)
	}
	s.started(raced, "a", 1, 1)
	s.ends(raced)
	s.ended(raced, tasklog.Succeeded)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		seq, err := s.End(t.Context(), subject.TasksStream, subject.Task(junk))
		if err != nil {
			t.Fatal(err)
		}
		if seq == 0 && len(s.ledger.Junk(time.Now(), 10)) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is still there")
		}
	}
	// What stood before it may have been removed before it came, on a slow machine.
	if st := s.state(squatted); st.Phase != tasklog.PhaseQueued || st.Void > 1 {
		t.Errorf("the task is %+v, want queued behind one void entry at most", st)
	}
}
