package tasklog

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// A Phase is where a task stands.
type Phase int

// The phases. PhaseFailed is a failed attempt whose task goes on.
const (
	PhaseNone Phase = iota
	PhaseHeld
	PhaseQueued
	PhaseRunning
	PhaseFailed
	PhaseCancelling
	PhaseEnded
)

func (p Phase) String() string {
	return [...]string{"none", "held", "queued", "running", "failed", "cancelling", "ended"}[p]
}

// Poison is how many times a task may take its runner down with it before it ends with an error.
const Poison = 3

// A State is what a log adds up to. Its zero value is a task of which nothing is known. Holder, Boot, Attempt and
// StartSeq stay those of the latest started entry through failed, queued and cancelling.
type State struct {
	Phase      Phase
	Attempt    int // executions started so far
	Allowed    int // executions allowed; 0 until the first start says so
	Holder     string
	Boot       uint64
	StartSeq   uint64
	RequestSeq uint64 // the only request that may be started
	TailSeq    uint64
	Target     string // of the latest request: any, held or an agent id
	Type       subject.AgentType
	Priority   subject.Priority
	Silent     bool // the latest attempt was revoked for silence; its end still counts until another begins
	Paused     bool
	Deaths     int // runners that died holding it
	Code       fault.Code
	RetryAt    time.Time // when the next attempt is due, by the failed attempt's word
	Cancel     *message.Cancel
	Hold       *message.Hold
	End        Kind
	Stray      *fault.Fault // phase none: what is wrong with the request that stands there
	Void       int          // entries that do not count
}

// Mine reports whether an entry's writer holds, or held last, the latest attempt.
func (s State) Mine(writer string, attempt int, boot uint64) bool {
	return s.Holder != "" && s.Holder == writer && s.Attempt == attempt && s.Boot == boot
}

// A Refusal says why an entry may not follow. It is what makes a stored entry void.
type Refusal struct {
	Phase  Phase
	Kind   Kind
	Writer string
	Why    string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s by %s is refused while the task is %s: %s", r.Kind, r.Writer, r.Phase, r.Why)
}

// Judge says whether an entry may follow: nil or a *Refusal. This is the transition table; whatever it does not
// list is refused. Conditions that only time can show (settled, expired) are the writer's word.
func Judge(s State, e Entry) error {
	why := ""
	if e.Subject.Writer == subject.Orchestrator {
		why = s.judgeOrchestrator(e)
	} else {
		why = s.judgeRunner(e)
	}
	if why == "" {
		return nil
	}
	return &Refusal{Phase: s.Phase, Kind: e.Kind, Writer: e.Subject.Writer, Why: why}
}

// addsForce reports whether an entry wants an end by force, which no cancel before it has wanted.
func (s State) addsForce(e Entry) bool {
	c := e.ext().Cancel
	return c != nil && c.Force && (s.Cancel == nil || !s.Cancel.Force)
}

const notListed = "no rule allows it"

func (s State) judgeOrchestrator(e Entry) string {
	if e.Boot != 0 {
		return "an orchestrator has no boot number"
	}
	if e.Attempt != s.Attempt {
		return fmt.Sprintf("it speaks of attempt %d, the task is at %d", e.Attempt, s.Attempt)
	}
	code := e.code()
	switch s.Phase {
	case PhaseNone:
		switch {
		case e.Kind == Submitted, e.Kind == Held:
			return ""
		case e.Kind == Error && s.Stray != nil:
			return oneOf(code, s.Stray.Code)
		}
	case PhaseHeld:
		switch {
		case e.Kind == Queued, e.Kind == Cancelled:
			return ""
		case e.Kind == Error:
			return oneOf(code, fault.Timeout, fault.ResourceLimitExceeded)
		}
	case PhaseQueued:
		switch {
		case e.Kind == Queued, e.Kind == Held, e.Kind == Cancelled:
			return ""
		case e.Kind == Error:
			return oneOf(code, fault.Timeout, fault.ResourceLimitExceeded)
		}
	case PhaseRunning:
		return s.revoke(e)
	case PhaseFailed:
		switch {
		case e.Kind == Queued:
			return cmp.Or(when(s.Attempt < s.Allowed, "no attempt is left"), when(s.Deaths < Poison, "it has taken too many runners down with it"))
		case e.Kind == Cancelled:
			return ""
		case e.Kind == CancelRequested:
			return when(s.Silent, "nobody holds it, it can be cancelled at once")
		case e.Kind == Error && (s.Attempt >= s.Allowed || s.Deaths >= Poison):
			return oneOf(code, fault.Timeout, fault.AgentUnavailable)
		case e.Kind == Error:
			return "attempts are left"
		}
	case PhaseCancelling:
		switch {
		case e.Kind == Cancelled:
			return when(e.ext().Gone || s.Allowed > 1, "its holder may be at it still")
		case e.Kind == CancelRequested:
			return when(s.addsForce(e), "it is being stopped already")
		case e.Kind == Error:
			return oneOf(code, fault.Timeout)
		}
	case PhaseEnded:
		return "it has ended"
	}
	return notListed
}

// revoke judges what an orchestrator may append to a running task. It never ends one under a live lease.
func (s State) revoke(e Entry) string {
	switch {
	case e.Kind == CancelRequested:
		return ""
	case e.Kind == AttemptFailed && e.ext().Silent:
		return when(s.Allowed > 1, "silence alone does not take away work that may not be repeated")
	case e.Kind == AttemptFailed && e.ext().Gone:
		return cmp.Or(when(s.Attempt < s.Allowed, "no attempt is left"), oneOf(e.code(), fault.AgentUnavailable))
	case e.Kind == Error && e.ext().Gone:
		return cmp.Or(when(s.Attempt >= s.Allowed, "attempts are left"), oneOf(e.code(), fault.AgentUnavailable))
	}
	return notListed
}

func (s State) judgeRunner(e Entry) string {
	if s.Phase == PhaseEnded {
		return "it has ended"
	}
	if e.Kind == Started {
		return s.judgeStart(e)
	}
	if !s.Mine(e.Subject.Writer, e.Attempt, e.Boot) {
		return "its writer does not hold the task"
	}
	switch s.Phase {
	case PhaseRunning:
		switch e.Kind {
		case Succeeded, Failed, Error:
			return ""
		case Paused:
			return when(!s.Paused, "it is paused already")
		case Resumed:
			return when(s.Paused, "it is not paused")
		case AttemptFailed:
			switch {
			case e.ext().Silent, e.ext().Gone:
				return "only an orchestrator calls an agent silent or gone"
			case !e.code().Retryable():
				return fmt.Sprintf("code %d is not retried", e.code())
			}
			return when(s.Attempt < s.Allowed, "no attempt is left")
		}
	case PhaseQueued, PhaseFailed:
		if e.Kind == Succeeded || e.Kind == Failed {
			return when(s.Silent, "the attempt had failed by its own word")
		}
	case PhaseCancelling:
		switch e.Kind {
		case Cancelled, Succeeded, Failed, Error:
			return ""
		}
	}
	return notListed
}

func (s State) judgeStart(e Entry) string {
	switch {
	case s.Phase != PhaseQueued:
		return notListed
	case s.Target != subject.Any && s.Target != e.Subject.Writer:
		return fmt.Sprintf("the request is addressed to %s", s.Target)
	case e.Message.FromAgent != s.Type:
		return fmt.Sprintf("the request is for agents of type %s", s.Type)
	case e.Attempt != s.Attempt+1:
		return fmt.Sprintf("it begins attempt %d, the next is %d", e.Attempt, s.Attempt+1)
	case s.Allowed > 0 && s.Attempt >= s.Allowed:
		return "no attempt is left"
	case e.Boot == 0:
		return "a runner has a boot number"
	}
	return ""
}

func when(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}

func oneOf(code fault.Code, codes ...fault.Code) string {
	if slices.Contains(codes, code) {
		return ""
	}
	return fmt.Sprintf("code %d does not belong here", code)
}
