package ledger

import (
	"strings"

	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// voidRoom is how many bytes of void entries are kept, at most, between reading and yielding them. The others are
// shown without their message.
const voidRoom = 4 << 20

// shown is a void entry as it is yielded: with the message it carries if that can be read, and if there is room.
func shown(e tasklog.Entry, void error, room *int) tasklog.Entry {
	data := e.Data
	e.Data, e.Message, e.Err = nil, message.Any{}, void
	if _, err := message.Read(data); err == nil && len(data) <= *room {
		e.Data = data
		*room -= len(data)
	}
	return e
}

// entryEvent is what people see of an entry, without its place and its message; void says why it does not count, allowed how many
// attempts the task has.
func entryEvent(e tasklog.Entry, void error, allowed int) view.Event {
	ev := view.Event{Kind: string(e.Kind), Time: e.Time, Attempt: e.Attempt, Writer: e.Subject.Writer, Cause: cause(e, allowed)}
	if e.Subject.Verb == "request" {
		ev.Writer = subject.Orchestrator
	}
	if e.Subject.Writer != subject.Orchestrator {
		ev.AgentID = e.Subject.Writer
	}
	if void != nil {
		ev.Void = strings.TrimPrefix(void.Error(), string(e.Kind)+" ") // the event says its kind itself
	}
	return ev
}

func (w *watch) event(e tasklog.Entry) view.Event {
	ev := entryEvent(e, e.Err, w.reader.State.Allowed)
	ev.ID = w.at.String()
	if len(e.Data) > 0 {
		ev.Message = e.Data
	}
	return ev
}
