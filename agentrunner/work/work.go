// Package work knows how each work type is done on this host: it reads the files that say so, judges a request by them
// and does it. It knows nothing of the broker, of leases or of how progress is reported.
package work

import (
	"cmp"
	"context"
	"fmt"
	"syscall"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// A Worker does one piece of work that was accepted by Catalogue.Prepare, once. Work returns when nothing of it runs
// any more. When ctx ends, the work is stopped as the *Stop that is its cause says, or as its type says by default.
type Worker interface {
	Work(ctx context.Context, a Attempt, out Sink) Outcome
}

// An Attempt is one execution of a request.
type Attempt struct {
	Task     subject.TaskID
	Number   int // from 1 up
	Agent    subject.AgentID
	Envelope message.Envelope
	Request  message.WorkRequest
	Dir      string    // where a directory for this attempt may be made; it is removed afterwards
	Began    time.Time // start of the task's first attempt; zero means now
	Owner    string    // under what name child.Sweep finds what is left of the work

	// Keep, if set, is a file to which the outcome of work that must not be repeated (one attempt) is also written, so
	// that it is not lost when the runner dies: see Recover. Whoever has the outcome removes it.
	Keep string

	// Started, if set, is told of the process, so that its deadlines can be moved. Work that needs no process never
	// calls it.
	Started func(*child.Process)
}

// A Sink takes what work says while it runs. Its methods are called one at a time, in the order of events: output that
// comes after a Step belongs to that step. Output must not keep its argument.
type Sink interface {
	Output(p []byte)
	Step(s Step)
}

// A Step is reported when it begins, and again with Done when it is completed; a step that fails is never done.
type Step struct {
	Number  int // from 1 up
	Name    string
	Percent *int // of the whole work, never less than before and below 100; nil when the total is not known
	Done    bool
}

// An Outcome is how an attempt ended.
type Outcome struct {
	Status    string // message.ResultSuccess, ResultFailed or ResultCancelled
	ExitCode  int
	Signal    string                 // the signal it died of, as "SIGTERM"
	Fault     *fault.Fault           // an error in place of a result
	Note      string                 // a line for people that belongs behind the output; may be empty
	Resources *message.ResourcesUsed // never nil
}

// A Stop is the cause of a context that ends: how to end the work, and what has then happened to it.
type Stop struct {
	Signal string        // as "SIGINT"; default that of the work type
	Grace  time.Duration // until SIGKILL; default that of the work type
	Most   time.Duration // bounds the time until SIGKILL, also that of the work type; 0 means that nothing does
	Reason string        // for people
	Fault  *fault.Fault  // the outcome; nil means cancelled
}

func (s *Stop) Error() string { return "stopped: " + s.Reason }

// First is the signal that comes first, 0 where that is left to the work type.
func (s *Stop) First() syscall.Signal { return signalOr(s.Signal, 0) }

// grace is how long the work has until SIGKILL; own is what its work type says.
func (s *Stop) grace(own time.Duration) time.Duration {
	grace := cmp.Or(s.Grace, own)
	if s.Most > 0 {
		return min(grace, s.Most)
	}
	return grace
}

// A Problem is something wrong in a file of work types.
type Problem struct {
	File    string
	Line    int // 0 means the file as a whole
	Message string
	Cure    string // what to do about it; may be empty
}

func (p Problem) Error() string {
	at := p.File
	if p.Line > 0 {
		at = fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	if p.Cure == "" {
		return at + ": " + p.Message
	}
	return at + ": " + p.Message + ": " + p.Cure
}
