package tasklog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// ErrExpectation makes an entry void whose expectation is not the entry before it.
var ErrExpectation = errors.New("it does not expect the entry before it")

// Next folds one more entry into a state. An entry that does not count (unreadable, out of place, refused by the
// table) is void: it changes nothing but the tail, and the error says why.
func (s State) Next(e Entry) (State, error) {
	err := e.Err
	switch {
	case err != nil:
	case e.Expect != s.TailSeq && !s.begins(e):
		err = ErrExpectation
	default:
		err = Judge(s, e)
	}
	s.TailSeq = e.Seq
	if err != nil {
		s.Void++
		if s.Phase == PhaseNone && e.Subject.Verb == "request" {
			s.Stray = stray(err)
		}
		return s, err
	}
	return s.apply(e), nil
}

// begins reports whether an entry begins a task whose log has nothing before it any more: it stood behind void entries,
// which were removed while it was stored.
func (s State) begins(e Entry) bool {
	return s.TailSeq == 0 && (e.Kind == Submitted || e.Kind == Held) && e.Attempt == 0
}

// A Reader folds a log entry by entry, for who keeps the log in memory. Its zero value has read nothing.
type Reader struct {
	State State
	asked bool // a request was read, be it a void one
}

// Next folds one more entry, and returns what of it is worth keeping. Anybody may put large void entries on a log:
// they are kept without what they carry, but for the first request of a log that has no other. A kept entry is void
// again when it is folded again, for the same reason.
func (r *Reader) Next(e Entry) (kept Entry, void error) {
	r.State, void = r.State.Next(e)
	request := e.Message.Request != nil
	if void != nil && (r.asked || !request) {
		e.Data, e.Message, e.Err = nil, message.Any{}, void
	}
	r.asked = r.asked || request
	return e, void
}

// stray is what the submitter of a request that is no entry has to hear.
func stray(err error) *fault.Fault {
	if flt, ok := errors.AsType[*fault.Fault](err); ok {
		return flt
	}
	return fault.Invalid("", "the request is no entry of its task's log: %v", err)
}

// Fold adds up a log from its first entry on.
func Fold(entries []Entry) State {
	var s State
	for _, e := range entries {
		s, _ = s.Next(e)
	}
	return s
}

func (s State) apply(e Entry) State {
	s.Stray = nil
	if e.Kind.End() {
		s.Phase, s.End, s.Paused, s.Code = PhaseEnded, e.Kind, false, e.code()
		return s
	}
	switch e.Kind {
	case Submitted, Queued, Held:
		s.Phase, s.RequestSeq = PhaseQueued, e.Seq
		s.Target, s.Type, s.Priority = e.Subject.Target, e.Subject.Type, e.Subject.Priority
		s.Hold = nil
		if e.Kind == Held {
			s.Phase, s.Hold = PhaseHeld, e.ext().Hold
		}
	case Started:
		s.Phase, s.Attempt, s.StartSeq = PhaseRunning, e.Attempt, e.Seq
		s.Holder, s.Boot = e.Subject.Writer, e.Boot
		s.Silent, s.Paused = false, false
		if s.Allowed == 0 {
			s.Allowed = e.ext().Attempts // the first start fixes it for the task's life
		}
	case Paused, Resumed:
		s.Paused = e.Kind == Paused
	case AttemptFailed:
		s.Phase, s.Paused, s.Code = PhaseFailed, false, e.code()
		s.Silent = e.ext().Silent
		if e.ext().Gone {
			s.Deaths++
		}
		s.RetryAt = e.Time
		if at := e.ext().RetryAt; at != nil {
			s.RetryAt = *at
		}
	case CancelRequested:
		s.Phase, s.Cancel = PhaseCancelling, e.ext().Cancel
	}
	return s
}

// TaskID derives a task's id from who submits and the request's id (UUID version 8 of SHA-256), so that a repeated
// submission meets its own log.
func TaskID(submitter string, request message.UUID) subject.TaskID {
	return subject.TaskID(derive("task", submitter, string(request)))
}

// RequestID derives a request id from an idempotency key in the same way.
func RequestID(submitter, key string) message.UUID {
	return message.UUID(derive("request", submitter, key))
}

func derive(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	b := h.Sum(nil)[:16]
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	x := hex.EncodeToString(b)
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}
