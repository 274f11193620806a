package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// WaitingFor says in words why a task does not run yet; "" when it runs or has ended.
func (d *Dispatcher) WaitingFor(t ledger.Task, now time.Time) string {
	switch s := t.State; s.Phase {
	case tasklog.PhaseHeld, tasklog.PhaseQueued:
		return d.whoFor(t, now)
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

// An obstacle is what keeps one agent from a task. The lower it is, the nearer the agent is to taking it.
type obstacle struct {
	height int
	words  string
}

// shownObstacles is how many agents are named to people.
const shownObstacles = 5

// whoFor names the agents that a waiting task is for, and what keeps each: those first that are nearest to taking it.
func (d *Dispatcher) whoFor(t ledger.Task, now time.Time) string {
	var found []obstacle
	for _, a := range d.agents.Agents(now) {
		if a.AgentType == t.Type && (t.Agent == "" || t.Agent == string(a.AgentID)) {
			found = append(found, obstacleOf(a, t, d.lapses.get(t.ID, a.AgentID), now))
		}
	}
	switch {
	case len(found) == 0 && t.Agent != "":
		return fmt.Sprintf("agent %s, which has not been heard yet", t.Agent)
	case len(found) == 0:
		return fmt.Sprintf("an agent of type %s: none has registered yet", t.Type)
	}
	slices.SortStableFunc(found, func(a, b obstacle) int { return cmp.Compare(a.height, b.height) })
	var why []string
	for _, o := range found[:min(shownObstacles, len(found))] {
		why = append(why, o.words)
	}
	said := fmt.Sprintf("an agent of type %s: %s", t.Type, strings.Join(why, ", "))
	if more := len(found) - shownObstacles; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}

func obstacleOf(a registry.Agent, t ledger.Task, past lapse, now time.Time) obstacle {
	switch {
	case !a.Offers(t.WorkType):
		return obstacle{6, fmt.Sprintf("%s does not offer %s", a.AgentID, t.WorkType)}
	case !a.Fits(t.On, t.Needs):
		return obstacle{5, fmt.Sprintf("%s has not the labels or capabilities asked for", a.AgentID)}
	case !a.Live:
		return obstacle{4, fmt.Sprintf("%s is silent", a.AgentID)}
	case !a.Ready() && a.Detail != "":
		return obstacle{3, fmt.Sprintf("%s is %s (%s)", a.AgentID, a.State, a.Detail)}
	case !a.Ready():
		return obstacle{3, fmt.Sprintf("%s is %s", a.AgentID, a.State)}
	case now.Before(past.until):
		return obstacle{2, fmt.Sprintf("%s did not start it and is tried again in %s", a.AgentID, past.until.Sub(now).Round(time.Second))}
	case a.Free() == 0:
		return obstacle{1, fmt.Sprintf("%s has no free slot (%d of %d)", a.AgentID, len(a.Running), a.Slots)}
	}
	return obstacle{0, fmt.Sprintf("%s is about to take it", a.AgentID)}
}
