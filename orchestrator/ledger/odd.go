package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// Kinds of what is put on record beside the log, as the audit's subjects name them.
const (
	OddLate = "late" // an outcome that came too late to be recorded as the end
	OddVoid = "void" // an entry that does not count
)

// An Odd thing has no place in a task's state, and belongs on record all the same: the audit holds it in this form.
type Odd struct {
	V       int            `json:"v"`
	Kind    string         `json:"kind"` // OddLate or OddVoid
	ID      string         `json:"id"`   // the same whoever puts it on record
	Time    time.Time      `json:"time"`
	Task    subject.TaskID `json:"task_id"`
	Writer  string         `json:"writer"`            // an agent's id, or orchestrator
	Attempt int            `json:"attempt,omitempty"` // of a late outcome
	Outcome string         `json:"outcome,omitempty"` // of a late outcome: what it would have been
	Entry   string         `json:"entry,omitempty"`   // of a void entry: its kind, by its own word
	Seq     uint64         `json:"seq,omitempty"`     // of a void entry
	Why     string         `json:"why,omitempty"`     // of a void entry
	Omitted int            `json:"omitted,omitempty"` // of a void entry: how many before it were not put on record
}

// oddVersion is that of an Odd.
const oddVersion = 1

// maxOdd bounds what waits to be put on record, of either kind: entries that do not count anybody can write.
const maxOdd = 1000

// A Late outcome is what an attempt came to, told when it could not be recorded any more.
type Late struct {
	Agent   subject.AgentID
	Attempt int
	Outcome string
	Time    time.Time
}

// Odd returns what is not known to be on record, the oldest first.
func (l *Ledger) Odd() []Odd {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Clone(l.odd)
}

// OnRecord takes note that an odd thing is on record.
func (l *Ledger) OnRecord(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onRecord(id)
}

func (l *Ledger) onRecord(id string) {
	l.odd = slices.DeleteFunc(l.odd, func(o Odd) bool { return o.ID == id })
}

// ForgetVoid drops void entries older than a moment: whoever leads has put them on record.
func (l *Ledger) ForgetVoid(before time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.odd = slices.DeleteFunc(l.odd, func(o Odd) bool { return o.Kind == OddVoid && o.Time.Before(before) })
}

func (l *Ledger) addOdd(o Odd) {
	of := 0
	for _, have := range l.odd {
		if have.Kind == o.Kind {
			of++
		}
	}
	if of < maxOdd {
		o.V = oddVersion
		l.odd = append(l.odd, o)
	}
}

// void notes an entry that does not count.
func (l *Ledger) void(e tasklog.Entry, why error) {
	if !l.loaded || why == nil {
		return
	}
	l.addOdd(Odd{
		Kind: OddVoid, ID: fmt.Sprintf("void.%d", e.Seq), Time: e.Time.UTC(), Task: e.Subject.Task, Writer: e.Subject.Writer,
		Entry: string(e.Kind), Seq: e.Seq, Why: why.Error(),
	})
}

// tooLate takes in an outcome that came too late, from whoever held the attempt; new is false if it was known.
func (t *Task) tooLate(o Late) (isNew bool) {
	if o.Attempt < 1 || o.Attempt > len(t.Attempts) || t.Attempts[o.Attempt-1].Agent != o.Agent {
		return false
	}
	if slices.ContainsFunc(t.Late, func(have Late) bool { return have.Attempt == o.Attempt }) {
		return false
	}
	// A new slice: copies of the task share the old one.
	t.Late = append(slices.Clone(t.Late), o)
	return true
}

// cameLate takes in a status that tells of an outcome which came too late.
func (l *Ledger) cameLate(t *Task, writer string, st message.Message[message.WorkStatus], at time.Time) {
	x := st.Custom.Chiffon
	o := Late{Agent: subject.AgentID(writer), Attempt: x.Attempt, Outcome: x.Outcome, Time: at}
	if t.tooLate(o) {
		l.addOdd(Odd{
			Kind: OddLate, ID: "late." + string(st.MessageID), Time: at.UTC(), Task: t.ID, Writer: writer,
			Attempt: o.Attempt, Outcome: o.Outcome,
		})
	}
}

// ReadRecord takes in the late outcomes that are on record: statuses are not kept as long.
func (l *Ledger) ReadRecord(ctx context.Context) error {
	for m, err := range l.client.Range(ctx, subject.AuditStream, subject.Audit(OddLate), 1) {
		if err != nil {
			return fmt.Errorf("read late outcomes: %w", err)
		}
		var o Odd
		if err := json.Unmarshal(m.Data, &o); err != nil || o.V != oddVersion {
			l.log.Warn("late outcome on record is not read", "seq", m.Seq, "v", o.V, "error", err)
			continue
		}
		l.mu.Lock()
		if t := l.tasks[o.Task]; t != nil {
			t.tooLate(Late{Agent: subject.AgentID(o.Writer), Attempt: o.Attempt, Outcome: o.Outcome, Time: o.Time})
		}
		l.onRecord(o.ID)
		l.mu.Unlock()
	}
	return nil
}

func lateView(late []Late) (all []view.Late) {
	for _, o := range late {
		all = append(all, view.Late{AgentID: string(o.Agent), Attempt: o.Attempt, Time: o.Time.UTC(), Outcome: o.Outcome})
	}
	return all
}
