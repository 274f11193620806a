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

func (w *watch) event(e tasklog.Entry) view.Event {
	ev := view.Event{ID: w.at.String(), Kind: string(e.Kind), Time: e.Time, Attempt: e.Attempt}
	if e.Subject.Writer != subject.Orchestrator {
		ev.AgentID = e.Subject.Writer
	}
	if e.Err != nil {
		ev.Void = strings.TrimPrefix(e.Err.Error(), string(e.Kind)+" ") // the event says its kind itself
	}
	if len(e.Data) > 0 {
		ev.Message = e.Data
	}
	return ev
}
