package why

import (
	"fmt"
	"strings"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// Task says why a task is where it is, and what comes next.
func Task(t ledger.Task, f Facts) view.Why {
	w := view.Why{ID: string(t.ID), State: t.StateName(), Because: []string{}}
	var because []string
	switch t.State.Phase {
	case tasklog.PhaseNone:
		if t.State.Stray != nil {
			because = append(because, "its request cannot be read: "+t.State.Stray.Message)
			w.Next = "it ends with an error"
		}
	case tasklog.PhaseHeld, tasklog.PhaseQueued:
		because, w.Next = f.waits(t)
	case tasklog.PhaseFailed:
		because, w.Next = f.failed(t)
	case tasklog.PhaseRunning:
		because, w.Next = f.runs(t)
	case tasklog.PhaseCancelling:
		because, w.Next = f.cancelling(t)
	case tasklog.PhaseEnded:
		because, w.Next = f.ended(t)
	}
	w.Because = append(w.Because, because...)
	w.Because = append(w.Because, f.before(t)...)
	return w
}

// SilentSince is the last sign of life of the agent that holds a task, if that agent is silent; else zero. Of one that
// was never heard it is when this orchestrator began to listen.
func SilentSince(t ledger.Task, f Facts) time.Time {
	if p := t.State.Phase; p != tasklog.PhaseRunning && p != tasklog.PhaseCancelling {
		return time.Time{}
	}
	a, _ := f.agent(t.State.Holder)
	switch {
	case a.Live:
	case !a.Heard.IsZero():
		return a.Heard
	case f.Now.Sub(f.Since) >= f.Lease:
		return f.Since
	}
	return time.Time{}
}

// before is what else happened to a task: attempts before the latest, and what does not count.
func (f Facts) before(t ledger.Task) (list []string) {
	if n := len(t.Attempts); n > 1 {
		var runs []string
		for i, s := range t.Attempts[:n-1] {
			runs = append(runs, fmt.Sprintf("%d on %s (%s)", i+1, s.Agent, f.ago(s.At)))
		}
		list = append(list, "earlier attempts: "+strings.Join(runs, ", "))
	}
	for _, late := range f.Late {
		list = append(list, fmt.Sprintf("%s told the outcome of attempt %d too late, %s: %s; it is shown and changes nothing",
			late.AgentID, late.Attempt, f.ago(late.Time), late.Cause))
	}
	switch n := t.State.Void; n {
	case 0:
	case 1:
		list = append(list, "1 entry of its log does not count: orchestrator task history "+short(t.ID))
	default:
		list = append(list, fmt.Sprintf("%d entries of its log do not count: orchestrator task history %s", n, short(t.ID)))
	}
	return list
}

// waits speaks of a task that may begin, or is held.
func (f Facts) waits(t ledger.Task) (because []string, next string) {
	s := t.State
	if held := heldFor(t); s.Phase == tasklog.PhaseHeld && held != "" {
		because = append(because, "it is held for "+held)
		return because, join("it may begin when that is over", f.expiry(t))
	}
	found := f.obstacles(t)
	least := ignorant
	if len(found) > 0 {
		least = found[0].height
	}
	switch {
	case len(found) == 0 && t.Agent != "":
		because = append(because, fmt.Sprintf("agent %s, the only one that may do it, has not been heard yet", t.Agent))
	case len(found) == 0:
		because = append(because, fmt.Sprintf("no agent of type %s has registered yet", t.Type))
	default:
		because = append(because, fmt.Sprintf("%s of type %s: %s", some(len(found), "agent"), t.Type, named(found, 20)))
	}
	if t.Agent != "" && len(found) > 0 {
		because = append(because, "only agent "+t.Agent+" may do it")
	}
	if s.Phase == tasklog.PhaseQueued && s.Target != subject.Any && s.Target != t.Agent {
		because = append(because, fmt.Sprintf("it was put to %s %s, which is to begin it within %s", s.Target, f.ago(t.Seen), span(f.Lease)))
	}
	if s.Phase == tasklog.PhaseHeld && s.Hold != nil && s.Hold.Detail != "" {
		because = append(because, "held for placement: "+s.Hold.Detail)
	}
	if s.Attempt > 0 {
		because = append(because, fmt.Sprintf("attempt %d of %d is to begin%s", s.Attempt+1, s.Allowed, f.after(t)))
	}
	return because, join(begins(t, len(found), least), f.expiry(t))
}

// begins says what it takes for a task to begin, by the lowest obstacle.
func begins(t ledger.Task, agents int, least height) string {
	switch {
	case agents == 0 && t.Agent != "":
		return "it begins when " + t.Agent + " is heard: start its runner (agentrunner run)"
	case agents == 0:
		return fmt.Sprintf("it begins when one registers: start a runner (agentrunner run), or orchestrator task cancel %s", short(t.ID))
	case least >= unfit:
		return fmt.Sprintf("no agent there is can do it: start one that fits, or orchestrator task cancel %s", short(t.ID))
	case least == silent:
		return "it begins when one of them is heard again: look after its host"
	case least == shut:
		return "it begins when one of them gets work again (orchestrator agent why ID says when)"
	case least == busy:
		return "it begins as soon as one of them has a free slot"
	case least == lapsed:
		return "it is tried again by itself"
	}
	return "it begins within moments"
}

func (f Facts) expiry(t ledger.Task) string {
	if t.Due.IsZero() {
		return ""
	}
	return "unless its time in the queue is over first, in " + span(t.Due.Sub(f.Now))
}

func (f Facts) after(t ledger.Task) string {
	if t.Fault == nil {
		return ""
	}
	return fmt.Sprintf(" after %d: %s", t.Fault.Code, t.Fault.Message)
}

// failed speaks of a task between two attempts.
func (f Facts) failed(t ledger.Task) (because []string, next string) {
	because = append(because, f.nextAttempt(t))
	s := t.State
	if s.Deaths >= tasklog.Poison {
		because = append(because, poison(s.Deaths))
	}
	if s.Attempt >= s.Allowed || s.Deaths >= tasklog.Poison {
		next = "it ends with an error"
	} else {
		next = fmt.Sprintf("attempt %d begins by itself; to have none: orchestrator task cancel %s", s.Attempt+1, short(t.ID))
	}
	if wait := f.settles(t); s.Silent && wait > 0 {
		because = append(because, fmt.Sprintf("attempt %d was taken from %s for its silence: nothing is decided for another %s, until it has stopped for certain", s.Attempt, s.Holder, span(wait)))
	}
	return because, next
}

func poison(deaths int) string {
	return fmt.Sprintf("%d runners died while they ran it: it is not tried again", deaths)
}

// runs speaks of a task that somebody holds.
func (f Facts) runs(t ledger.Task) (because []string, next string) {
	s := t.State
	text := fmt.Sprintf("attempt %d of %d runs on %s since %s", s.Attempt, s.Allowed, s.Holder, span(f.Now.Sub(t.StartedAt)))
	if t.Step.Number > 0 {
		text += fmt.Sprintf(", at step %d, %s", t.Step.Number, t.Step.Name)
	}
	if t.Percent >= 0 {
		text += fmt.Sprintf(", %d %%", t.Percent)
	}
	because = append(because, text)
	if s.Paused {
		because = append(because, "it waits for a person's answer")
	}
	if since := SilentSince(t, f); !since.IsZero() {
		return f.outOfReach(t, because, since)
	}
	because = append(because, f.lastSign(t))
	next = "it ends when the work does; its output: orchestrator task logs " + short(t.ID) + " -f"
	if t.MaxDuration > 0 {
		next += "; it is stopped in " + span(t.FirstStart.Add(t.MaxDuration).Sub(f.Now)) + " at the latest (max_duration_seconds)"
	}
	return because, next
}

// lastSign says when the attempt was last heard of.
func (f Facts) lastSign(t ledger.Task) string {
	s := t.State
	a, ok := f.agent(s.Holder)
	at := f.listed(t.ID, s.Attempt, s.Boot)
	switch {
	case at.IsZero() && ok && a.Live:
		return fmt.Sprintf("%s was heard %s and has not told of this attempt yet", s.Holder, f.ago(a.Heard))
	case at.IsZero():
		return s.Holder + " has not been heard yet since this orchestrator listens"
	case ok && a.Live && f.Now.Sub(at) > f.Silence:
		return fmt.Sprintf("%s is heard, but has not told of this attempt for %s", s.Holder, span(f.Now.Sub(at)))
	}
	return "last sign of life " + f.ago(at)
}

// outOfReach speaks of a task whose holder is silent: nobody knows whether it still runs.
func (f Facts) outOfReach(t ledger.Task, because []string, since time.Time) ([]string, string) {
	s := t.State
	if a, _ := f.agent(s.Holder); a.Stopped() {
		because = append(because, fmt.Sprintf("%s %s and has not told yet what became of this", s.Holder, f.silence(a)))
	} else {
		because = append(because, fmt.Sprintf("%s has been silent for %s: the work may still be running", s.Holder, span(f.Now.Sub(since))))
	}
	if s.Allowed > 1 {
		wait := max(0, f.Silence-f.Now.Sub(since))
		return because, fmt.Sprintf("unless %s is heard, the attempt is taken from it in %s, and %s later another agent may begin the next", s.Holder, span(wait), span(f.Lease+f.Grace))
	}
	because = append(because, "it is never begun a second time (attempts: 1), however long that takes")
	left := since.Add(f.LostAfter).Sub(f.Now)
	if t.MaxDuration > 0 {
		left = t.FirstStart.Add(t.MaxDuration).Sub(f.Now)
	}
	return because, fmt.Sprintf("its outcome is recorded when %s is back; in %s it is given up as an error; to stop it: orchestrator task cancel %s", s.Holder, span(left), short(t.ID))
}

// asked says who wants a task stopped, why and how.
func (f Facts) asked(t ledger.Task) string {
	c := t.Cancel
	if c == nil {
		c = &message.Cancel{}
	}
	if c.Deadline {
		return colon(fmt.Sprintf("its time was over %s", f.ago(t.CancelAt)), c.Reason)
	}
	by := c.By
	if by == "" {
		by = "somebody"
	}
	return colon(fmt.Sprintf("%s asked %s to stop it", by, f.ago(t.CancelAt)), c.Reason)
}

// cancelling speaks of a task that is to be stopped and is not yet.
func (f Facts) cancelling(t ledger.Task) (because []string, next string) {
	s := t.State
	because = append(because, f.asked(t))
	c := t.Cancel
	if c == nil {
		c = &message.Cancel{}
	}
	how := ""
	if c.Signal != "" {
		how = " with " + c.Signal
	}
	switch grace := time.Duration(c.GraceSeconds) * time.Second; {
	case grace <= 0:
	case s.Allowed > 1 && grace >= f.Lease/2:
		how += fmt.Sprintf(", and kills what is left after %s, or before its lease of %s is over", span(grace), span(f.Lease))
	default:
		how += fmt.Sprintf(", and kills what is left after %s", span(grace))
	}
	since := SilentSince(t, f)
	if since.IsZero() {
		because = append(because, fmt.Sprintf("%s stops attempt %d%s; %s", s.Holder, s.Attempt, how, f.lastSign(t)))
		return because, fmt.Sprintf("it ends when %s has stopped every process of it", s.Holder)
	}
	because = append(because, fmt.Sprintf("runner silent for %s: nobody can say that %s has stopped it", span(f.Now.Sub(since)), s.Holder))
	wait := span(f.settles(t))
	switch {
	case s.Allowed > 1:
		next = fmt.Sprintf("in %s at the latest %s has stopped it by itself, for want of its lease; then it ends", wait, s.Holder)
	case c.Deadline, c.Force:
		next = fmt.Sprintf("in %s it ends as an error: stop not confirmed", wait)
	default:
		next = fmt.Sprintf("%s learns of it as soon as it is back, and confirms; not to wait for that, and never to know what became of it: orchestrator task cancel %s --force", s.Holder, short(t.ID))
	}
	return because, next
}

// ended speaks of a task that is over.
func (f Facts) ended(t ledger.Task) (because []string, next string) {
	s := t.State
	again := "to start it anew: orchestrator task retry " + short(t.ID)
	attempts := "before any attempt"
	if s.Attempt > 0 {
		attempts = fmt.Sprintf("in attempt %d of %d on %s", s.Attempt, s.Allowed, s.Holder)
		if !t.StartedAt.IsZero() {
			attempts += ", which took " + span(t.EndedAt.Sub(t.StartedAt))
		}
	}
	when := f.ago(t.EndedAt)
	switch s.End {
	case tasklog.Succeeded:
		because = append(because, fmt.Sprintf("it succeeded %s, %s", when, attempts))
	case tasklog.Failed:
		text := "it failed"
		if f.Result != nil {
			text = fmt.Sprintf("it failed with exit code %d", f.Result.ExitCode)
		}
		because = append(because, fmt.Sprintf("%s %s, %s", text, when, attempts), "work that says itself that it failed is not tried again")
		next = again + "; its output: orchestrator task logs " + short(t.ID)
	case tasklog.Cancelled:
		because = append(because, fmt.Sprintf("it was cancelled %s, %s", when, attempts))
		next = again
	default:
		text := fmt.Sprintf("it ended with an error %s, %s", when, attempts)
		if t.Fault != nil {
			text = fmt.Sprintf("it ended with %d %s, %s: %s", t.Fault.Code, when, attempts, t.Fault.Message)
		}
		because = append(because, text)
		next = again
	}
	if s.Deaths >= tasklog.Poison {
		because = append(because, poison(s.Deaths))
	}
	if t.Cancel != nil {
		because = append(because, f.asked(t))
	}
	if t.EndedBy == subject.Orchestrator && s.Attempt > 0 {
		because = append(because, fmt.Sprintf("an orchestrator recorded that, not %s", s.Holder))
	}
	return because, next
}
