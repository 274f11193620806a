package ledger

import (
	"time"

	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// junk is what is kept of an id that only void entries name: anybody may write those, under as many ids as he likes.
type junk struct {
	since time.Time // of the first of them
	tail  uint64    // the last
	void  int
}

// maxJunk is how many such ids are remembered.
const maxJunk = 100_000

// first is a task before an entry, with what was put on its log before.
func (l *Ledger) first(e tasklog.Entry) *Task {
	t := newTask(e.Subject.Task)
	j, ok := l.junk[t.ID]
	switch {
	case ok:
		t.State.TailSeq, t.State.Void = j.tail, j.void
	case l.dropped:
		t.State.TailSeq = e.Expect // the broker has held it against what is forgotten here
	}
	return t
}

func (l *Ledger) litter(t *Task, e tasklog.Entry) {
	j, ok := l.junk[t.ID]
	if !ok {
		if len(l.junk) >= maxJunk {
			l.dropped = true
			return
		}
		j.since = e.Time
	}
	j.tail, j.void = t.State.TailSeq, t.State.Void
	l.junk[t.ID] = j
}

// Junk returns ids that only void entries name, the first of which is older than a moment, with the last one's
// sequence; at most limit of them.
func (l *Ledger) Junk(before time.Time, limit int) map[subject.TaskID]uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	old := map[subject.TaskID]uint64{}
	for id, j := range l.junk {
		if len(old) == limit {
			break
		}
		if j.since.Before(before) {
			old[id] = j.tail
		}
	}
	return old
}

// IsJunk reports whether an entry is still the last that names an id, and still nothing but void ones do.
func (l *Ledger) IsJunk(id subject.TaskID, tail uint64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	j, ok := l.junk[id]
	return ok && j.tail == tail
}

// ForgetJunk drops an id whose void entries, up to a sequence, have been purged.
func (l *Ledger) ForgetJunk(id subject.TaskID, tail uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j, ok := l.junk[id]; ok && j.tail == tail {
		delete(l.junk, id)
	}
}
