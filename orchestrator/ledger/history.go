package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// KindLate is the kind of an event of a history that is no entry: an outcome which came too late to be recorded.
const KindLate = "late"

// maxLate bounds how many statuses are looked at for late outcomes.
const maxLate = 20000

// History reads a page of a task's log: every entry behind a place in the stream (0 is the first), void ones too, with
// writer, cause and the holder after it, but without its message; among them the outcomes that came too late to be
// recorded, by their time. more says that there is something behind the page.
func (l *Ledger) History(ctx context.Context, id subject.TaskID, after uint64, limit int) (page []view.Event, more bool, err error) {
	var reader tasklog.Reader
	var from, until time.Time // what came too late belongs to the page of the entry before it
	var lost revoked
	for m, err := range l.client.Current(ctx, subject.TasksStream, subject.Task(id), 1) {
		if err != nil {
			return nil, false, fmt.Errorf("history of task %s: %w", id, err)
		}
		if len(page) == limit {
			more, until = true, m.Time
			break
		}
		e := m.Entry()
		before := reader.State
		_, void := reader.Next(e)
		if void == nil {
			lost.note(before, e)
		}
		if e.Seq <= after {
			continue
		}
		if len(page) == 0 && after > 0 {
			from = e.Time
		}
		ev := entryEvent(e, void, reader.State.Allowed)
		ev.ID, ev.Holder = Cursor{Tasks: e.Seq}.String(), reader.State.Holder
		page = append(page, ev)
	}
	late, err := l.late(ctx, id, lost)
	if err != nil {
		return nil, false, err
	}
	for _, ev := range late {
		if !ev.Time.Before(from) && (until.IsZero() || ev.Time.Before(until)) {
			page = append(page, ev)
		}
	}
	slices.SortStableFunc(page, func(a, b view.Event) int { return a.Time.Compare(b.Time) })
	return page, more, nil
}

// Late finds the outcomes of a task that came too late to be recorded, given its log.
func (l *Ledger) Late(ctx context.Context, id subject.TaskID, log []tasklog.Entry) ([]view.Event, error) {
	var s tasklog.State
	var lost revoked
	for _, e := range log {
		next, void := s.Next(e)
		if void == nil {
			lost.note(s, e)
		}
		s = next
	}
	return l.late(ctx, id, lost)
}

// revoked is which agents an attempt was taken away from, or were not waited for, and since when: only they can have
// told of an outcome too late.
type revoked struct {
	agents []subject.AgentID
	since  time.Time
}

func (r *revoked) note(before tasklog.State, e tasklog.Entry) {
	holds := before.Phase == tasklog.PhaseRunning || before.Phase == tasklog.PhaseCancelling
	if e.Subject.Writer != subject.Orchestrator || !holds || e.Kind == tasklog.CancelRequested {
		return
	}
	if id := subject.AgentID(before.Holder); !slices.Contains(r.agents, id) {
		r.agents = append(r.agents, id)
	}
	if r.since.IsZero() {
		r.since = e.Time
	}
}

func (l *Ledger) late(ctx context.Context, id subject.TaskID, lost revoked) (found []view.Event, err error) {
	if len(lost.agents) == 0 {
		return nil, nil
	}
	looked := 0
	seen := map[message.UUID]bool{}
	for _, agent := range lost.agents {
		filter := subject.Status(id, agent)
		from, ok, err := l.client.FirstSince(ctx, subject.StatusStream, filter, lost.since)
		if err != nil {
			return nil, fmt.Errorf("late outcomes of task %s: %w", id, err)
		}
		if !ok {
			continue
		}
		for m, err := range l.client.Current(ctx, subject.StatusStream, filter, from) {
			if err != nil {
				return nil, fmt.Errorf("late outcomes of task %s: %w", id, err)
			}
			if looked++; looked > maxLate {
				return found, nil
			}
			if ev, id, ok := lateEvent(m, agent); ok && !seen[id] {
				seen[id] = true
				found = append(found, ev)
			}
		}
	}
	return found, nil
}

// lateEvent reads a status, if it tells of an outcome that came too late.
func lateEvent(m broker.Msg, agent subject.AgentID) (ev view.Event, id message.UUID, ok bool) {
	st, err := message.Decode[message.WorkStatus](m.Data)
	if err != nil || st.Custom.Chiffon == nil || !st.Custom.Chiffon.Late || st.Custom.AgentID != agent {
		return ev, "", false
	}
	e := tasklog.Entry{Message: message.Any{Envelope: st.Envelope, Status: &st.Payload}}
	return view.Event{
		ID: Cursor{Status: m.Seq}.String(), Kind: KindLate, Time: m.Time, AgentID: string(agent), Writer: string(agent),
		Attempt: st.Custom.Chiffon.Attempt, Cause: cause(e, 0),
	}, st.MessageID, true
}
