package ledger

import (
	"context"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A FactKind is what one entry says of an agent.
type FactKind string

// The kinds of facts.
const (
	FactStarted FactKind = "started" // it has begun an attempt
	FactEnded   FactKind = "ended"   // it has recorded a task's end: work that was done, well or not, or stopped as it was asked to
	FactFailed  FactKind = "failed"  // it has recorded a failed attempt, or a task's end, by a fault: Code says which
	FactSilent  FactKind = "silent"  // an attempt was taken from it, or its task was ended, for want of its word
	FactGone    FactKind = "gone"    // its runner has died with an attempt
	FactVoid    FactKind = "void"    // it has put an entry on a task's log that does not count: Why says why
)

// A Fact is what one new entry of the task log says of an agent.
type Fact struct {
	Agent subject.AgentID
	Kind  FactKind
	Code  fault.Code // of FactFailed, FactSilent and FactGone
	Why   string     // of FactVoid
	Task  subject.TaskID
	Seq   uint64 // of the entry
	Time  time.Time
}

// factsBuffered is how far a reader of facts may be behind.
const factsBuffered = 4096

// Facts returns a channel of what entries say of agents, of those that come while the ledger runs: not of the past
// that it folds after a start. It is closed by nobody, and gets nothing more once ctx has ended. A fact is dropped
// when its reader is behind by 4096. Every orchestrator has its own.
func (l *Ledger) Facts(ctx context.Context) <-chan Fact {
	c := make(chan Fact, factsBuffered)
	l.mu.Lock()
	l.facts[c] = true
	l.mu.Unlock()
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.facts, c)
	})
	return c
}

// say passes on what an entry of a task says of an agent, if that is something. before is the task's state without it.
func (l *Ledger) say(t *Task, before tasklog.State, e tasklog.Entry, void error) {
	if !l.loaded || len(l.facts) == 0 {
		return
	}
	f, ok := fact(t, before, e, void)
	if !ok {
		return
	}
	for c := range l.facts {
		select {
		case c <- f:
		default:
		}
	}
}

func fact(t *Task, before tasklog.State, e tasklog.Entry, void error) (Fact, bool) {
	f := Fact{Task: e.Subject.Task, Seq: e.Seq, Time: e.Time, Agent: subject.AgentID(e.Subject.Writer)}
	own := e.Subject.Writer != subject.Orchestrator
	if e.Message.Failure != nil {
		f.Code = e.Message.Failure.Code
	}
	switch {
	case void != nil:
		f.Kind, f.Why, f.Code = FactVoid, void.Error(), 0
		return f, own
	case own && e.Kind == tasklog.Started:
		f.Kind = FactStarted
	case own && e.Kind == tasklog.Error && f.Code == fault.Timeout && timeOver(t, before, e):
		f.Kind, f.Code = FactEnded, 0
	case own && (e.Kind == tasklog.AttemptFailed || e.Kind == tasklog.Error):
		f.Kind = FactFailed
	case own && e.Kind.End():
		f.Kind = FactEnded
	case own:
		return f, false
	default:
		f.Agent = subject.AgentID(before.Holder)
		f.Kind = ofHolder(before, e)
	}
	return f, f.Kind != "" && f.Agent != ""
}

// clocks is how far apart two programs are about the moment an attempt began.
const clocks = time.Second

// timeOver reports whether a task's own time was over when its holder recorded that it had stopped it: by the task's
// max_duration_seconds, or because an orchestrator had said so. Then the agent did what it was asked to.
func timeOver(t *Task, before tasklog.State, e tasklog.Entry) bool {
	if before.Phase == tasklog.PhaseCancelling && before.Cancel != nil && before.Cancel.Deadline {
		return true
	}
	return t.MaxDuration > 0 && !t.FirstStart.IsZero() && e.Time.Sub(t.FirstStart) >= t.MaxDuration-clocks
}

// ofHolder is what an orchestrator's entry says of the agent that held the task; "" when that is nothing.
func ofHolder(before tasklog.State, e tasklog.Entry) FactKind {
	x := e.Message.Custom.Chiffon
	switch held := before.Phase == tasklog.PhaseRunning || before.Phase == tasklog.PhaseCancelling; {
	case !held || e.Kind == tasklog.CancelRequested:
		return ""
	case x != nil && x.Gone:
		return FactGone
	}
	return FactSilent
}
