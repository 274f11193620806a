// Package tasklog holds the rules of a task's life: what an entry of its log is, what the log adds up to, and which
// entry may follow. Pure functions: it knows no broker and no clock. The rules in words: docs/tasklog.md.
package tasklog

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// A Kind is what an entry says has happened.
type Kind string

// The kinds of entries. The last four are ends.
const (
	Submitted       Kind = "submitted"
	Held            Kind = "held"
	Queued          Kind = "queued"
	Started         Kind = "started"
	Paused          Kind = "paused"
	Resumed         Kind = "resumed"
	AttemptFailed   Kind = "attempt_failed"
	CancelRequested Kind = "cancel_requested"
	Succeeded       Kind = "succeeded"
	Failed          Kind = "failed"
	Cancelled       Kind = "cancelled"
	Error           Kind = "error"
)

// Kinds lists all of them.
var Kinds = []Kind{
	Submitted, Held, Queued, Started, Paused, Resumed, AttemptFailed, CancelRequested,
	Succeeded, Failed, Cancelled, Error,
}

// End reports whether the kind ends a task.
func (k Kind) End() bool { return k == Succeeded || k == Failed || k == Cancelled || k == Error }

// IsRequest reports whether entries of the kind are work requests.
func (k Kind) IsRequest() bool { return k == Submitted || k == Held || k == Queued }

// Headers of an entry.
const (
	HeaderEntry         = "Chiffon-Entry"
	HeaderEvent         = "Chiffon-Event"
	HeaderAttempt       = "Chiffon-Attempt"
	HeaderBoot          = "Chiffon-Boot"
	HeaderExpect        = "Nats-Expected-Last-Subject-Sequence"
	HeaderExpectSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
)

// An Entry is one message of a task's log as it is stored.
type Entry struct {
	Seq     uint64 // its place in the stream
	Expect  uint64 // the place of the entry it follows; 0 for the first
	Time    time.Time
	ID      string // message_id of its envelope
	Kind    Kind
	Attempt int    // number of the attempt; on a request: how many were started before
	Boot    uint64 // the writer's incarnation; 0 for the orchestrator
	Subject subject.Parsed
	Message message.Any // the envelope; zero when Err is set
	Data    []byte      // the envelope as it is stored

	// Err says why the entry cannot be read, nil when it can. A *fault.Fault when the envelope is at fault.
	Err error
}

// ext is the entry's extension fields, never nil.
func (e Entry) ext() *message.Extension {
	if e.Message.Custom.Chiffon == nil {
		return &message.Extension{}
	}
	return e.Message.Custom.Chiffon
}

// code is the error code of an entry that carries one, else 0.
func (e Entry) code() fault.Code {
	if e.Message.Failure == nil {
		return 0
	}
	return e.Message.Failure.Code
}

// Read makes an entry of a stored message. What is wrong with it stands in Err: an entry that cannot be read is
// part of the log all the same (void, section 2 of the rules).
func Read(subj string, header map[string][]string, data []byte, seq uint64, at time.Time) Entry {
	e := Entry{Seq: seq, Time: at, Data: data}
	var ok bool
	if e.Subject, ok = subject.Parse(subj); !ok || e.Subject.Verb == "status" {
		e.Err = fault.Invalid("", "%s is no subject of a task log", subj)
		return e
	}
	if e.Err = e.readHeader(header); e.Err != nil {
		// The envelope says more about a message that was put there by hand than its missing headers do.
		if _, err := message.Read(data); err != nil {
			e.Err = err
		}
		return e
	}
	if e.Message, e.Err = message.Read(data); e.Err != nil {
		return e
	}
	if e.Err = e.check(); e.Err != nil {
		e.Message = message.Any{}
	}
	return e
}

func (e *Entry) readHeader(header map[string][]string) error {
	get := func(name string) string {
		if v := header[name]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	number := func(name string) (uint64, error) {
		n, err := strconv.ParseUint(get(name), 10, 64)
		if err != nil {
			return 0, fault.Invalid(name, "header %s is %q, not a number", name, get(name))
		}
		return n, nil
	}
	e.ID, e.Kind = get(HeaderEntry), Kind(get(HeaderEvent))
	if e.ID == "" {
		return fault.Invalid(HeaderEntry, "header %s is missing", HeaderEntry)
	}
	if want := subject.Task(e.Subject.Task); get(HeaderExpectSubject) != want {
		return fault.Invalid(HeaderExpectSubject, "header %s is %q, not %q", HeaderExpectSubject, get(HeaderExpectSubject), want)
	}
	attempt, err := number(HeaderAttempt)
	if err != nil {
		return err
	}
	e.Attempt = int(min(attempt, 1<<30))
	if e.Boot, err = number(HeaderBoot); err != nil {
		return err
	}
	e.Expect, err = number(HeaderExpect)
	return err
}

// check holds the envelope against the subject and the kind.
func (e *Entry) check() error {
	m := e.Message
	if want := kindOfEnvelope(e.Kind); want == "" {
		return fault.Invalid(HeaderEvent, "%q is no kind of entry", e.Kind)
	} else if m.Kind != want {
		return fault.Invalid("type", "a %s entry is a %s, not a %s", e.Kind, want, m.Kind)
	}
	if string(m.MessageID) != e.ID {
		return fault.Invalid("message_id", "message_id %s is not the entry's id %s", m.MessageID, e.ID)
	}
	if id, ok := taskOf(m); ok && id != e.Subject.Task {
		return fault.Invalid("payload.task_id", "task_id %s stands on the subject of %s", id, e.Subject.Task)
	}
	if e.Kind.IsRequest() != (e.Subject.Verb == "request") {
		return fault.Invalid(HeaderEvent, "a %s entry does not stand on a %s subject", e.Kind, e.Subject.Verb)
	}
	if e.Kind.IsRequest() {
		return e.checkRequest()
	}
	if err := e.checkWriter(); err != nil {
		return err
	}
	return e.checkStatus()
}

// checkWriter holds the sender that an event names against the one that its subject does.
func (e *Entry) checkWriter() error {
	from, id := e.Message.FromAgent, string(e.Message.Custom.AgentID)
	if e.Subject.Writer == subject.Orchestrator && from == subject.Orchestrator && id == "" ||
		e.Subject.Writer != subject.Orchestrator && from != subject.Orchestrator && id == e.Subject.Writer {
		return nil
	}
	return fault.New(fault.AuthenticationFailed, "sender %q (agent_id %q) stands on the subject of %q", from, id, e.Subject.Writer).
		With("agent_id", e.Subject.Writer).With("token_status", "sender disagrees with subject")
}

func (e *Entry) checkRequest() error {
	if (e.Kind == Held) != (e.Subject.Target == subject.Held) {
		return fault.Invalid(HeaderEvent, "a %s entry does not stand on target %q", e.Kind, e.Subject.Target)
	}
	if e.Subject.Target != subject.Any && e.Subject.Target != subject.Held {
		if err := subject.AgentID(e.Subject.Target).Check(); err != nil {
			return fault.Invalid("", "target of the request: %v", err)
		}
	}
	if !slices.Contains(subject.Priorities, e.Subject.Priority) {
		return fault.Invalid("", "%q is no priority of a request", e.Subject.Priority)
	}
	if e.Message.ToAgent != e.Subject.Type {
		return fault.Invalid("to_agent", "to_agent %q stands on a subject of type %q", e.Message.ToAgent, e.Subject.Type)
	}
	return nil
}

func (e *Entry) checkStatus() error {
	want := map[Kind]string{
		Started: message.StatusRunning, Resumed: message.StatusRunning, CancelRequested: message.StatusRunning,
		Paused: message.StatusPaused, Succeeded: message.ResultSuccess, Failed: message.ResultFailed,
		Cancelled: message.ResultCancelled,
	}[e.Kind]
	got := ""
	switch {
	case e.Message.Status != nil:
		got = e.Message.Status.Status
	case e.Message.Result != nil:
		got = e.Message.Result.Status
	}
	if got != want {
		return fault.Invalid("payload.status", "a %s entry has status %q, not %q", e.Kind, want, got)
	}
	if e.Kind == Started && e.ext().Attempts < 1 {
		return fault.Invalid("x_custom_fields.chiffon.attempts", "a started entry says how many attempts are allowed")
	}
	if e.Kind == CancelRequested && e.ext().Cancel == nil {
		return fault.Invalid("x_custom_fields.chiffon.cancel", "a cancel_requested entry says who cancels and why")
	}
	return nil
}

func kindOfEnvelope(k Kind) message.Kind {
	switch k {
	case Submitted, Held, Queued:
		return message.KindWorkRequest
	case Started, Paused, Resumed, CancelRequested:
		return message.KindWorkStatus
	case Succeeded, Failed, Cancelled:
		return message.KindWorkResult
	case AttemptFailed, Error:
		return message.KindError
	}
	return ""
}

func taskOf(m message.Any) (subject.TaskID, bool) {
	switch {
	case m.Request != nil:
		return m.Request.TaskID, true
	case m.Status != nil:
		return m.Status.TaskID, true
	case m.Result != nil:
		return m.Result.TaskID, true
	}
	return "", false
}

// A Draft is an entry that is to be appended.
type Draft struct {
	Task    subject.TaskID
	Subject string
	Kind    Kind
	ID      string
	Attempt int
	Boot    uint64
	Expect  uint64 // the tail it follows
	Data    []byte
}

// Header is the draft's headers.
func (d Draft) Header() map[string][]string {
	return map[string][]string{
		HeaderEntry:         {d.ID},
		HeaderEvent:         {string(d.Kind)},
		HeaderAttempt:       {strconv.Itoa(d.Attempt)},
		HeaderBoot:          {strconv.FormatUint(d.Boot, 10)},
		HeaderExpect:        {strconv.FormatUint(d.Expect, 10)},
		HeaderExpectSubject: {subject.Task(d.Task)},
	}
}

// Write makes a draft of a message. The entry's id is the message_id, so a new decision needs a new message: an id
// is never used for two tails. The error is a *fault.Fault when the message is not valid.
func Write[P message.Payload](kind Kind, id subject.TaskID, subj string, m message.Message[P]) (Draft, error) {
	data, err := m.Encode()
	if err != nil {
		return Draft{}, fmt.Errorf("encode %s entry of task %s: %w", kind, id, err)
	}
	return Draft{Task: id, Subject: subj, Kind: kind, ID: string(m.MessageID), Data: data}, nil
}

// At completes a draft: the tail it follows, the attempt it speaks of and its writer's incarnation.
func (d Draft) At(tail uint64, attempt int, boot uint64) Draft {
	d.Expect, d.Attempt, d.Boot = tail, attempt, boot
	return d
}
