// Package message is the protocol's envelope with its four payloads, and the heartbeat: read strictly, written as read.
// It does not know how messages travel or what they do to a task; docs/protocol.md is the text it is held to.
package message

import (
	"encoding/json"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

// Version is the protocol version that is spoken here.
const Version = "1.0"

// Versions lists those that are understood, lowest first.
var Versions = []string{Version}

// An Envelope is what every message has. Fields that are not known here survive reading and writing, at every level.
type Envelope struct {
	ProtocolVersion string
	MessageID       UUID // of this message
	FromAgent       subject.AgentType
	ToAgent         subject.AgentType
	Timestamp       Timestamp
	TraceID         UUID
	RequestID       UUID // of the request: the same over retries, and in all answers
	Custom          Custom
	rest
}

// A Message is an envelope with its payload.
type Message[P Payload] struct {
	Envelope
	Payload P
}

// Any is a message of a kind that the reader did not know before. Exactly one of the pointers is set, that of Kind.
type Any struct {
	Envelope
	Kind    Kind
	Request *WorkRequest
	Status  *WorkStatus
	Result  *WorkResult
	Failure *Failure
}

// New makes a message that is sent now: with a fresh message_id and version 1.0.
func New[P Payload](from, to subject.AgentType, trace, request UUID, payload P) Message[P] {
	return Message[P]{
		Envelope: Envelope{
			ProtocolVersion: Version, MessageID: NewUUID(), FromAgent: from, ToAgent: to, Timestamp: Now(),
			TraceID: trace, RequestID: request,
		},
		Payload: payload,
	}
}

// wire is the envelope as it is sent.
type wire struct {
	ProtocolVersion string          `json:"protocol_version"`
	MessageID       UUID            `json:"message_id" wire:"need"`
	FromAgent       party           `json:"from_agent" wire:"need"`
	ToAgent         party           `json:"to_agent" wire:"need"`
	Timestamp       Timestamp       `json:"timestamp" wire:"need"`
	TraceID         UUID            `json:"trace_id" wire:"need"`
	RequestID       UUID            `json:"request_id" wire:"need"`
	Type            Kind            `json:"type" wire:"need"`
	Payload         json.RawMessage `json:"payload" wire:"need"`
	Custom          Custom          `json:"x_custom_fields,omitzero"`
	rest
}

func (w *wire) check() error {
	switch {
	case w.ProtocolVersion == "":
		return wrongf("protocol_version", "is missing")
	case w.TraceID == nilUUID:
		return wrongf("trace_id", "must not be all zero")
	}
	switch w.Type {
	case KindWorkRequest, KindWorkStatus, KindWorkResult, KindError:
		return nil
	}
	return wrongf("type", "must be work_request, work_status, work_result or error, not %.32q", string(w.Type))
}

// Decode reads a message of one kind. The error is a *fault.Fault: 5006 for another protocol version, which is looked
// at before anything else but the syntax, and 5003 with the path of the first field that is wrong.
func Decode[P Payload](data []byte) (Message[P], error) {
	var m Message[P]
	w, err := open(data)
	if err == nil && w.Type != m.Payload.Kind() {
		err = wrongf("type", "must be %s here, not %s", m.Payload.Kind(), w.Type)
	}
	if err == nil {
		err = at("payload", decode(w.Payload, &m.Payload))
	}
	if err != nil {
		return Message[P]{}, asFault(err)
	}
	m.Envelope = w.envelope()
	return m, nil
}

// Read reads a message of any kind. Errors are those of Decode.
func Read(data []byte) (Any, error) {
	w, err := open(data)
	if err != nil {
		return Any{}, asFault(err)
	}
	a := Any{Envelope: w.envelope(), Kind: w.Type}
	var into any
	switch w.Type {
	case KindWorkRequest:
		a.Request = new(WorkRequest)
		into = a.Request
	case KindWorkStatus:
		a.Status = new(WorkStatus)
		into = a.Status
	case KindWorkResult:
		a.Result = new(WorkResult)
		into = a.Result
	case KindError:
		a.Failure = new(Failure)
		into = a.Failure
	}
	if err := at("payload", decode(w.Payload, into)); err != nil {
		return Any{}, asFault(err)
	}
	return a, nil
}

func open(data []byte) (wire, error) {
	var w wire
	if err := scan(data); err != nil {
		return w, err
	}
	s := scanner{data: data}
	if s.peek() != '{' {
		return w, wrongf("", "must be an object, not %s", kindOf(data[s.pos:]))
	}
	data = data[s.pos:]
	if err := checkVersion(data); err != nil {
		return w, err
	}
	return w, decode(data, &w)
}

// checkVersion refuses another version whatever the message holds: its fields are not ours to judge.
func checkVersion(data []byte) error {
	var version, workType string
	_ = elements(data, func(key, value []byte) error {
		switch unquote(key) {
		case "protocol_version":
			if value[0] == '"' {
				version = unquote(value)
			}
		case "payload":
			workType = workTypeOf(value)
		}
		return nil
	})
	if version == "" || version == Version {
		return nil
	}
	return otherVersion(workType, version)
}

func workTypeOf(payload []byte) (workType string) {
	if payload[0] != '{' {
		return ""
	}
	_ = elements(payload, func(key, value []byte) error {
		if unquote(key) == "work_type" && value[0] == '"' {
			workType = unquote(value)
		}
		return nil
	})
	return workType
}

func otherVersion(workType string, offered ...string) *fault.Fault {
	return fault.New(fault.UnsupportedWorkType, "protocol version %.100q is not supported; supported: %q", offered, Versions).
		With("work_type_requested", workType).With("supported_types", []string{}).With("supported_versions", Versions)
}

func (w *wire) envelope() Envelope {
	return Envelope{
		ProtocolVersion: w.ProtocolVersion, MessageID: w.MessageID,
		FromAgent: subject.AgentType(w.FromAgent), ToAgent: subject.AgentType(w.ToAgent), Timestamp: w.Timestamp,
		TraceID: w.TraceID, RequestID: w.RequestID, Custom: w.Custom, rest: w.rest,
	}
}

// Encode writes the message. It judges what it writes as Decode does what it reads, with the same faults; only what is
// no UTF-8 in a string becomes U+FFFD, so that a bad name does not cost a result.
func (m Message[P]) Encode() ([]byte, error) { return seal(m.Envelope, m.Payload.Kind(), &m.Payload) }

// MarshalJSON is Encode.
func (m Message[P]) MarshalJSON() ([]byte, error) { return m.Encode() }

// Encode writes the message as Message.Encode does.
func (a Any) Encode() ([]byte, error) {
	switch {
	case a.Kind == KindWorkRequest && a.Request != nil:
		return seal(a.Envelope, a.Kind, a.Request)
	case a.Kind == KindWorkStatus && a.Status != nil:
		return seal(a.Envelope, a.Kind, a.Status)
	case a.Kind == KindWorkResult && a.Result != nil:
		return seal(a.Envelope, a.Kind, a.Result)
	case a.Kind == KindError && a.Failure != nil:
		return seal(a.Envelope, a.Kind, a.Failure)
	}
	return nil, fault.Invalid("type", "is %q, but there is no such payload", a.Kind)
}

// MarshalJSON is Encode.
func (a Any) MarshalJSON() ([]byte, error) { return a.Encode() }

func seal(e Envelope, kind Kind, payload any) ([]byte, error) {
	if e.ProtocolVersion != "" && e.ProtocolVersion != Version {
		return nil, otherVersion("", e.ProtocolVersion)
	}
	raw, err := encode(nil, payload)
	if err != nil {
		return nil, asFault(at("payload", err))
	}
	data, err := encode(make([]byte, 0, len(raw)+1024), &wire{
		ProtocolVersion: e.ProtocolVersion, MessageID: e.MessageID,
		FromAgent: party(e.FromAgent), ToAgent: party(e.ToAgent), Timestamp: e.Timestamp,
		TraceID: e.TraceID, RequestID: e.RequestID, Type: kind, Payload: raw, Custom: e.Custom, rest: e.rest,
	})
	if err != nil {
		return nil, asFault(err)
	}
	if len(data) > MaxSize {
		return nil, fault.Invalid("", "has %d bytes, more than the %d allowed", len(data), MaxSize)
	}
	if kind == KindWorkRequest || kind == KindError {
		// what the sender made freely is deeper in the message than it was by itself
		if err := scan(data); err != nil {
			return nil, asFault(err)
		}
	}
	return data, nil
}
