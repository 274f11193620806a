package gateway

import (
	"context"
	"encoding/json"
	"strings"

	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A page is one answer to the question for a task's log. Anybody who may write to a log can make it long; a page fits
// every broker's limit of a message, whatever stands in the log.
const (
	pageBytes  = 512 << 10 // of JSON
	pageCount  = 512
	leanBytes  = 16 << 10 // an entry above this is cut down to what folding needs
	wordBytes  = 1 << 10  // of a text in such an entry
	headerSize = 1 << 10  // of all headers of a message that is no entry
)

// get answers with a page of a task's log: from a sequence on, and with the sequence to ask for next.
func (g *Gateway) get(ctx context.Context, data []byte) broker.LogReply {
	var ask struct {
		TaskID message.UUID `json:"task_id"`
		From   uint64       `json:"from"`
	}
	if err := json.Unmarshal(data, &ask); err != nil {
		return refused(fault.Invalid("task_id", "the question is not read: %v", err))
	}
	if _, err := message.ParseUUID(string(ask.TaskID)); err != nil {
		return refused(fault.Invalid("task_id", "%v", err))
	}
	var reply broker.LogReply
	size := 0
	for m, err := range g.client.Current(ctx, subject.TasksStream, subject.Task(subject.TaskID(ask.TaskID)), ask.From) {
		if err != nil {
			return refused(fault.New(fault.AgentUnavailable, "the task log cannot be read: %v", err).
				With("agent_id", subject.Orchestrator).With("last_heartbeat", nil))
		}
		m = lean(m)
		size += len(encode(m)) + 1
		if n := len(reply.Messages); n > 0 && size > pageBytes || n == pageCount {
			reply.Next = m.Seq
			return reply
		}
		reply.Messages = append(reply.Messages, m)
	}
	return reply
}

func refused(flt *fault.Fault) broker.LogReply {
	return broker.LogReply{Error: new(message.FailureOf(flt))}
}

// lean leaves out of a stored message what folding does not need. What cannot be read as an entry has no body then: it
// is void either way.
func lean(m broker.Msg) broker.Msg {
	e := m.Entry()
	if e.Err != nil {
		m.Data, m.Header = nil, entryHeader(m.Header)
		return m
	}
	m.Header = tasklog.Draft{
		Task: e.Subject.Task, Kind: e.Kind, ID: e.ID, Attempt: e.Attempt, Boot: e.Boot, Expect: e.Expect,
	}.Header()
	if len(m.Data) < leanBytes {
		return m
	}
	data, err := leanBody(e.Message)
	if err != nil || len(data) > 2*leanBytes {
		data = nil
	}
	m.Data = data
	return m
}

// entryHeader keeps an entry's headers, if they are small.
func entryHeader(h map[string][]string) map[string][]string {
	kept, size := map[string][]string{}, 0
	for k, values := range h {
		if strings.HasPrefix(k, "Chiffon-") || strings.HasPrefix(k, tasklog.HeaderExpect) {
			kept[k] = values
			size += len(k) + len(strings.Join(values, "\n"))
		}
	}
	if size > headerSize {
		return nil
	}
	return kept
}

// leanBody is an envelope without parameters, output and long words.
func leanBody(a message.Any) ([]byte, error) {
	env := message.Envelope{
		ProtocolVersion: a.ProtocolVersion, MessageID: a.MessageID, TraceID: a.TraceID, RequestID: a.RequestID,
		FromAgent: a.FromAgent, ToAgent: a.ToAgent, Timestamp: a.Timestamp,
		Custom: message.Custom{AgentID: a.Custom.AgentID, Chiffon: leanExtension(a.Custom.Chiffon)},
	}
	switch {
	case a.Request != nil:
		return message.Message[message.WorkRequest]{Envelope: env, Payload: message.WorkRequest{
			TaskID: a.Request.TaskID, WorkType: short(a.Request.WorkType), Parameters: json.RawMessage("{}"),
		}}.Encode()
	case a.Status != nil:
		return message.Message[message.WorkStatus]{Envelope: env, Payload: message.WorkStatus{
			TaskID: a.Status.TaskID, Status: a.Status.Status,
		}}.Encode()
	case a.Result != nil:
		return message.Message[message.WorkResult]{Envelope: env, Payload: message.WorkResult{
			TaskID: a.Result.TaskID, Status: a.Result.Status, ExitCode: a.Result.ExitCode,
			ResourcesUsed: a.Result.ResourcesUsed,
		}}.Encode()
	}
	return message.Message[message.Failure]{Envelope: env, Payload: message.Failure{
		Code: a.Failure.Code, Message: short(a.Failure.Message),
	}}.Encode()
}

func leanExtension(x *message.Extension) *message.Extension {
	if x == nil {
		return nil
	}
	l := &message.Extension{
		Attempt: x.Attempt, Attempts: x.Attempts, RetryAt: x.RetryAt, Silent: x.Silent, Gone: x.Gone, Late: x.Late,
		StatusCount: x.StatusCount, Begun: x.Begun,
	}
	if h := x.Hold; h != nil {
		l.Hold = &message.Hold{Reason: short(h.Reason), Detail: short(h.Detail), Until: h.Until}
	}
	if c := x.Cancel; c != nil {
		l.Cancel = &message.Cancel{
			Reason: short(c.Reason), By: short(c.By), GraceSeconds: c.GraceSeconds, Signal: short(c.Signal),
			Force: c.Force, Deadline: c.Deadline,
		}
	}
	return l
}

// short is a text, cut where it is long.
func short(s string) string {
	if len(s) <= wordBytes {
		return s
	}
	return strings.ToValidUTF8(s[:wordBytes], "") + "…"
}
