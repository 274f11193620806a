package dispatch

import (
	"fmt"
	"strings"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

func (w *world) agent(id subject.AgentID) (registry.Agent, bool) {
	for _, a := range w.agents {
		if a.AgentID == id {
			return a, true
		}
	}
	return registry.Agent{}, false
}

// can reports whether an agent could do a task, were it live and free.
func can(a registry.Agent, t ledger.Task) bool {
	return a.AgentType == t.Type && a.Offers(t.WorkType) && a.Fits(t.On, t.Needs) &&
		(t.Agent == "" || t.Agent == string(a.AgentID))
}

// place finds the agent with most free slots that can do a task now.
func (w *world) place(t ledger.Task) (best subject.AgentID, ok bool) {
	most := 0
	for _, a := range w.agents {
		if !a.Live || a.State == message.StateDraining || !can(a, t) {
			continue
		}
		if free := a.Slots - w.busy()[string(a.AgentID)] - w.coming[string(a.AgentID)]; free > most {
			best, most = a.AgentID, free
		}
	}
	return best, most > 0
}

// anyoneCan reports whether a request may stand where any agent of its type takes it: while every live one offers the
// work type, or none lives, and no label or capability is asked for.
func (w *world) anyoneCan(t ledger.Task) bool {
	if len(t.On) > 0 || len(t.Needs) > 0 {
		return false
	}
	for _, a := range w.agents {
		if a.Live && a.AgentType == t.Type && !a.Offers(t.WorkType) {
			return false
		}
	}
	return true
}

func (w *world) someoneFree(t ledger.Task) bool {
	for _, a := range w.agents {
		if a.Live && can(a, t) && a.Free() > 0 {
			return true
		}
	}
	return false
}

// targetFor is where a request goes that may start now.
func (w *world) targetFor(t ledger.Task) string {
	if t.Agent != "" {
		return t.Agent
	}
	if w.anyoneCan(t) {
		return subject.Any
	}
	if id, ok := w.place(t); ok {
		return string(id)
	}
	return t.State.Target // taken back after a lease, if it does not start there
}

// took keeps count of what was placed during one sweep.
func (w *world) took(t ledger.Task, a action) {
	if a.kind == tasklog.Queued && a.target != subject.Any && a.target != t.Agent {
		w.coming[a.target]++
	}
}

// WaitingFor says in words why a task does not run yet; "" when it runs or has ended.
func (d *Dispatcher) WaitingFor(t ledger.Task, now time.Time) string {
	switch s := t.State; s.Phase {
	case tasklog.PhaseHeld, tasklog.PhaseQueued:
		return whoFor(t, d.agents.Agents(now))
	case tasklog.PhaseFailed:
		if wait := s.RetryAt.Sub(now).Round(time.Second); wait > 0 {
			return fmt.Sprintf("attempt %d of %d starts in %s", s.Attempt+1, s.Allowed, wait)
		}
		return fmt.Sprintf("attempt %d of %d", s.Attempt+1, s.Allowed)
	case tasklog.PhaseCancelling:
		if a, ok := d.agents.Agent(subject.AgentID(s.Holder), now); !ok || !a.Live {
			return fmt.Sprintf("agent %s to confirm the stop (runner silent)", s.Holder)
		}
		return fmt.Sprintf("agent %s to confirm the stop", s.Holder)
	case tasklog.PhaseNone, tasklog.PhaseRunning, tasklog.PhaseEnded:
	}
	return ""
}

// whoFor names the agents that a waiting task is for, and what keeps each.
func whoFor(t ledger.Task, agents []registry.Agent) string {
	var known, why []string
	for _, a := range agents {
		if a.AgentType != t.Type || t.Agent != "" && t.Agent != string(a.AgentID) {
			continue
		}
		known = append(known, string(a.AgentID))
		switch {
		case !a.Offers(t.WorkType):
			why = append(why, fmt.Sprintf("%s does not offer %s", a.AgentID, t.WorkType))
		case !a.Fits(t.On, t.Needs):
			why = append(why, fmt.Sprintf("%s has not the labels or capabilities asked for", a.AgentID))
		case !a.Live:
			why = append(why, fmt.Sprintf("%s is silent", a.AgentID))
		case a.State == message.StateDraining:
			why = append(why, fmt.Sprintf("%s is draining", a.AgentID))
		case a.Free() == 0:
			why = append(why, fmt.Sprintf("%s has no free slot (%d of %d)", a.AgentID, len(a.Running), a.Slots))
		default:
			why = append(why, fmt.Sprintf("%s is about to take it", a.AgentID))
		}
	}
	switch {
	case len(known) == 0 && t.Agent != "":
		return fmt.Sprintf("agent %s, which has not been heard yet", t.Agent)
	case len(known) == 0:
		return fmt.Sprintf("an agent of type %s: none has registered yet", t.Type)
	}
	return fmt.Sprintf("an agent of type %s: %s", t.Type, strings.Join(why, ", "))
}
