package dispatch

import (
	"time"

	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/why"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/retry"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A world is what a decision rests on beside the task itself. It reads no clock.
type world struct {
	now       time.Time
	since     time.Time // timers start no earlier
	lease     time.Duration
	grace     time.Duration
	silence   time.Duration // after which a holder that no heartbeat lists counts as silent
	refusal   time.Duration // for which an agent goes on saying that it has refused a request, and is not tried again
	lostAfter time.Duration
	agents    []registry.Agent
	byID      map[subject.AgentID]registry.Agent // the same, made when it is first asked
	shut      func(id subject.AgentID) gate.Shut
	listed    func(id subject.TaskID, attempt int, boot uint64) time.Time
	consumer  func(name string) (delivered, acked uint64)
	requeued  func(id subject.TaskID) int
	lapsed    func(id subject.TaskID, agent subject.AgentID) lapse
	busy      func() map[string]int // slots that are taken or promised, by agent id, when the world was made
	coming    map[string]int        // promised since
	facts     func() why.Facts      // what reasons rest on; for words only
	placed    func() map[ledger.Placing]int
	ahead     map[ledger.Placing]int // placed since
}

// An action is one entry to append.
type action struct {
	kind    tasklog.Kind
	target  string // of a request
	hold    *message.Hold
	fault   *fault.Fault
	cancel  *message.Cancel
	silent  bool
	gone    bool
	retryAt time.Time
	lapsed  subject.AgentID // that did not start it
	refused fault.Code      // why that agent has refused it; 0 when it has said nothing
}

// decide says what is to be appended to a task now, if anything. A pure function of the task and the world.
func decide(t ledger.Task, w *world) (action, bool) {
	switch t.State.Phase {
	case tasklog.PhaseNone:
		if t.State.Stray != nil {
			return action{kind: tasklog.Error, fault: t.State.Stray}, true
		}
	case tasklog.PhaseHeld:
		return w.held(t)
	case tasklog.PhaseQueued:
		return w.queued(t)
	case tasklog.PhaseRunning:
		return w.running(t)
	case tasklog.PhaseFailed:
		return w.failed(t)
	case tasklog.PhaseCancelling:
		return w.cancelling(t)
	case tasklog.PhaseEnded:
	}
	return action{}, false
}

// waited is how long the tail has stood, as far as this process can swear.
func (w *world) waited(t ledger.Task) time.Duration { return w.now.Sub(later(t.Seen, w.since)) }

// settled reports whether whoever held the task has certainly stopped since it was revoked.
func (w *world) settled(t ledger.Task) bool { return w.waited(t) >= w.lease+w.grace }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (w *world) expired(t ledger.Task) (action, bool) {
	if t.Due.IsZero() || w.now.Before(t.Due) {
		return action{}, false
	}
	if flt := w.starved(t); flt != nil {
		return action{kind: tasklog.Error, fault: flt}, true
	}
	flt := fault.New(fault.Timeout, "its time in the queue is over%s", w.waitedFor(t)).With("attempted_retries", max(0, t.State.Attempt-1))
	if !t.StartedAt.IsZero() {
		flt = flt.With("last_attempt", t.StartedAt.UTC().Format(time.RFC3339))
	} else {
		flt = flt.With("last_attempt", t.SubmittedAt.UTC().Format(time.RFC3339))
	}
	return action{kind: tasklog.Error, fault: flt}, true
}

// maxReason is how many characters a reason may have in what is recorded: agents and people have a say in it.
const maxReason = 300

// waitedFor says what a task waited for at the end, behind what befell it.
func (w *world) waitedFor(t ledger.Task) string {
	text := []rune(why.WaitingFor(t, w.facts()))
	switch {
	case len(text) == 0:
		return ""
	case len(text) > maxReason:
		return "; it waited for " + string(text[:maxReason]) + "…"
	}
	return "; it waited for " + string(text)
}

func (w *world) held(t ledger.Task) (action, bool) {
	if a, ok := w.expired(t); ok {
		return a, true
	}
	if flt := w.impossible(t); flt != nil {
		return action{kind: tasklog.Error, fault: flt}, true
	}
	if h := t.State.Hold; h != nil && h.Reason != "" && h.Reason != placement {
		return action{}, false // not for want of a place
	}
	if agent, ok := w.place(t); ok {
		return action{kind: tasklog.Queued, target: string(agent)}, true
	}
	return action{}, false
}

func (w *world) queued(t ledger.Task) (action, bool) {
	if a, ok := w.expired(t); ok {
		return a, true
	}
	if flt := w.impossible(t); flt != nil {
		return action{kind: tasklog.Error, fault: flt}, true
	}
	s := t.State
	if back, ok := w.handedBack(t); ok {
		return back, true
	}
	if s.Target != subject.Any && s.Target != t.Agent {
		if back, ok := w.stuck(t); ok {
			return back, true
		}
	}
	if s.Target == subject.Any && !w.anyoneCan(t) {
		return hold("not every agent of type " + string(t.Type) + " can do it"), true
	}
	if w.waited(t) <= w.grace {
		return action{}, false // a started entry may be on its way
	}
	delivered, acked := w.consumer(consumerOf(t))
	switch {
	case acked >= s.RequestSeq:
		// Acknowledged and not started: nobody has it in hand.
		return action{kind: tasklog.Queued, target: s.Target}, true
	case delivered >= s.RequestSeq && w.someoneFree(t):
		patience := min(10*time.Minute, 2*w.lease<<min(w.requeued(t.ID), 8))
		if w.waited(t) > patience {
			return action{kind: tasklog.Queued, target: s.Target}, true
		}
	}
	return action{}, false
}

// placement is why a request is held that no agent can be found for yet.
const placement = "placement"

func hold(why string) action {
	return action{kind: tasklog.Held, target: subject.Held, hold: &message.Hold{Reason: placement, Detail: why}}
}

func consumerOf(t ledger.Task) string {
	if t.State.Target == subject.Any {
		return subject.TypeConsumer(t.Type, t.State.Priority)
	}
	return subject.AgentConsumer(subject.AgentID(t.State.Target), t.State.Priority)
}

func (w *world) running(t ledger.Task) (action, bool) {
	s := t.State
	if w.gone(t) {
		flt := w.unavailable(t, "the runner of "+s.Holder+" was started anew and holds it no more")
		if s.Attempt >= s.Allowed {
			return action{kind: tasklog.Error, fault: flt, gone: true}, true
		}
		return action{kind: tasklog.AttemptFailed, fault: flt, gone: true, retryAt: w.now.Add(retry.After(s.Attempt + 1))}, true
	}
	if a, ok := w.overdue(t); ok {
		return a, true
	}
	if s.Allowed > 1 && w.silentFor(t) > w.silence {
		flt := w.timeout(t, "no sign of life from "+s.Holder)
		return action{kind: tasklog.AttemptFailed, fault: flt, silent: true, retryAt: w.now.Add(retry.After(s.Attempt + 1))}, true
	}
	return action{}, false
}

// gone reports whether the holder's runner has certainly lost the attempt: a later incarnation does not list it.
func (w *world) gone(t ledger.Task) bool {
	a, ok := w.agent(subject.AgentID(t.State.Holder))
	return ok && !a.Heard.IsZero() && a.Boot > t.State.Boot && !a.Lists(t.ID, t.State.Attempt, t.State.Boot)
}

func (w *world) silentFor(t ledger.Task) time.Duration {
	last := w.listed(t.ID, t.State.Attempt, t.State.Boot)
	return w.now.Sub(later(last, later(t.Seen, w.since)))
}

// overdue asks a holder to stop whose time is over. It never ends the task at once: a runner may be about to begin.
func (w *world) overdue(t ledger.Task) (action, bool) {
	why, late := w.late(t)
	if !late || w.waited(t) <= w.lease {
		return action{}, false
	}
	return action{kind: tasklog.CancelRequested, cancel: &message.Cancel{Reason: why, By: subject.Orchestrator, Deadline: true}}, true
}

// late reports whether the deadline of a task that somebody holds has passed, and which.
func (w *world) late(t ledger.Task) (why string, late bool) {
	switch {
	case t.MaxDuration > 0:
		return "max_duration_seconds is over", w.now.Sub(t.Begun) > t.MaxDuration+w.lease
	case t.State.Allowed == 1:
		return "its agent has been out of reach for too long", w.silentFor(t) > w.lostAfter
	}
	return "", false
}

func (w *world) failed(t ledger.Task) (action, bool) {
	s := t.State
	if s.Silent && !w.settled(t) {
		return action{}, false
	}
	if s.Attempt >= s.Allowed || s.Deaths >= tasklog.Poison {
		switch {
		case s.Deaths >= tasklog.Poison:
			return action{kind: tasklog.Error, fault: w.unavailable(t, "its runner died three times while it ran")}, true
		case s.Code == fault.Timeout:
			return action{kind: tasklog.Error, fault: w.timeout(t, "no attempt is left")}, true
		}
		return action{kind: tasklog.Error, fault: w.unavailable(t, "no attempt is left")}, true
	}
	if t.RetryIn(w.now) > 0 {
		return action{}, false
	}
	return action{kind: tasklog.Queued, target: w.targetFor(t)}, true
}

func (w *world) cancelling(t ledger.Task) (action, bool) {
	s := t.State
	want := message.Cancel{}
	if s.Cancel != nil {
		want = *s.Cancel
	}
	_, late := w.late(t)
	safe := w.gone(t) || s.Allowed > 1 && w.settled(t)
	switch {
	case safe && want.Deadline:
		return action{kind: tasklog.Error, fault: w.timeout(t, want.Reason)}, true
	case safe:
		return action{kind: tasklog.Cancelled, gone: w.gone(t)}, true
	case w.settled(t) && (want.Deadline || want.Force && !w.stopping(t) || late):
		return w.unconfirmed(t), true
	}
	return action{}, false
}

// stopping reports whether a holder is heard to be at a task still, and has time left to stop it.
func (w *world) stopping(t ledger.Task) bool {
	grace := max(w.lease, time.Duration(t.State.Cancel.GraceSeconds)*time.Second)
	heard := w.listed(t.ID, t.State.Attempt, t.State.Boot)
	return !heard.IsZero() && w.now.Sub(heard) <= w.silence && w.waited(t) <= w.lease+w.grace+grace
}

// unconfirmed ends a task of which nobody knows what became.
func (w *world) unconfirmed(t ledger.Task) action {
	return action{kind: tasklog.Error, fault: w.timeout(t, "stop not confirmed: its outcome is unknown")}
}

func (w *world) timeout(t ledger.Task, why string) *fault.Fault {
	return fault.New(fault.Timeout, "attempt %d of %d: %s", t.State.Attempt, t.State.Allowed, why).
		With("attempted_retries", max(0, t.State.Attempt-1)).
		With("last_attempt", t.StartedAt.UTC().Format(time.RFC3339))
}

func (w *world) unavailable(t ledger.Task, why string) *fault.Fault {
	flt := fault.New(fault.AgentUnavailable, "attempt %d of %d: %s", t.State.Attempt, t.State.Allowed, why).
		With("agent_id", t.State.Holder).With("last_heartbeat", nil)
	if a, ok := w.agent(subject.AgentID(t.State.Holder)); ok && !a.Heard.IsZero() {
		flt = flt.With("last_heartbeat", a.Heard.UTC().Format(time.RFC3339))
	}
	return flt
}
