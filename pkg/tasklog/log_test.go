package tasklog

import (
	"testing"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

const (
	task  subject.TaskID = "0a8d1f6e-52c7-8e1b-9b1e-3f2a6c5d4e7f"
	trace message.UUID   = "11111111-2222-4333-8444-555555555555"
	order message.UUID   = "66666666-7777-4888-8999-aaaaaaaaaaaa"
)

// A writer is who appends, and what it says of itself. Attempt counts from the task's own: 0 is the same.
type writer struct {
	id      string // an agent's, or orchestrator
	kind    subject.AgentType
	attempt int
	boot    uint64
}

var (
	orchestrator = writer{subject.Orchestrator, subject.Orchestrator, 0, 0}
	holder       = writer{"web-1", "infra", 0, 7}
	starter      = writer{"web-1", "infra", 1, 7} // the holder, or one to be, with the next attempt
)

// A want is one entry that somebody wishes to append.
type want struct {
	kind     Kind
	target   string // of a request; "" is any
	code     fault.Code
	silent   bool
	gone     bool
	force    bool
	attempts int // of a started entry; 0 is 4
}

// draft writes a want as an entry of a task that is at attempt n and tail.
func (w want) draft(t testing.TB, by writer, n int, tail uint64) Draft {
	t.Helper()
	x := &message.Extension{Silent: w.silent, Gone: w.gone}
	custom := message.Custom{Chiffon: x}
	if by.id != subject.Orchestrator {
		custom.AgentID = subject.AgentID(by.id)
	}
	subj := subject.Event(task, by.id)
	var d Draft
	var err error
	switch kindOfEnvelope(w.kind) {
	case message.KindWorkRequest:
		target := w.target
		if target == "" {
			target = subject.Any
		}
		if w.kind == Held {
			target, x.Hold = subject.Held, &message.Hold{Reason: "placement"}
		}
		subj = subject.Request(task, "infra", target, subject.Normal)
		d, err = write(w.kind, by.kind, subj, custom, message.WorkRequest{TaskID: task, WorkType: "run", Parameters: []byte(`{}`)})
	case message.KindWorkStatus:
		status := message.StatusRunning
		switch w.kind {
		case Started:
			x.Attempts = 4
			if w.attempts > 0 {
				x.Attempts = w.attempts
			}
		case Paused:
			status = message.StatusPaused
		case CancelRequested:
			x.Cancel = &message.Cancel{Reason: "enough", By: "me", Force: w.force}
		}
		d, err = write(w.kind, by.kind, subj, custom, message.WorkStatus{TaskID: task, Status: status})
	case message.KindWorkResult:
		status := map[Kind]string{Succeeded: message.ResultSuccess, Failed: message.ResultFailed, Cancelled: message.ResultCancelled}[w.kind]
		code := map[Kind]int{Failed: 1, Cancelled: 143}[w.kind]
		d, err = write(w.kind, by.kind, subj, custom, message.WorkResult{TaskID: task, Status: status, ExitCode: code, ResourcesUsed: &message.ResourcesUsed{}})
	default:
		d, err = write(w.kind, by.kind, subj, custom, message.FailureOf(fault.New(w.code, "it did not work")))
	}
	if err != nil {
		t.Fatalf("write %s: %v", w.kind, err)
	}
	return d.At(tail, max(n+by.attempt, 0), by.boot)
}

func write[P message.Payload](k Kind, from subject.AgentType, subj string, custom message.Custom, payload P) (Draft, error) {
	to := subject.AgentType(subject.Orchestrator)
	if from == subject.Orchestrator {
		to = "infra"
	}
	m := message.New(from, to, trace, order, payload)
	m.Custom = custom
	return Write(k, task, subj, m)
}

// stored is a draft as the broker would hand it out.
func stored(d Draft, seq uint64) Entry {
	return Read(d.Subject, d.Header(), d.Data, seq, time.Unix(int64(seq), 0).UTC())
}

// A log is a task's entries, for tests that write one step by step. Sequences leave gaps, as in a stream.
type log struct {
	entries []Entry
	state   State
}

const stride = 3

// add appends an entry that has to be valid.
func (l *log) add(t testing.TB, w want, by writer) {
	t.Helper()
	if err := l.try(t, w, by); err != nil {
		t.Fatalf("%s by %s while the task is %s: %v", w.kind, by.id, l.state.Phase, err)
	}
}

func (l *log) try(t testing.TB, w want, by writer) error {
	t.Helper()
	e := stored(w.draft(t, by, l.state.Attempt, l.state.TailSeq), uint64(len(l.entries)+1)*stride)
	if e.Err != nil {
		t.Fatalf("%s by %s cannot be read: %v", w.kind, by.id, e.Err)
	}
	return l.put(e)
}

func (l *log) put(e Entry) (err error) {
	l.entries = append(l.entries, e)
	l.state, err = l.state.Next(e)
	return err
}
