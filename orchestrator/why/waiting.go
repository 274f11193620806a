package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// WaitingFor says in a line what a task waits for; "" when it runs or has ended.
func WaitingFor(t ledger.Task, f Facts) string {
	switch s := t.State; s.Phase {
	case tasklog.PhaseHeld:
		if held := heldFor(t); held != "" {
			return held
		}
		return f.waitFor(t)
	case tasklog.PhaseQueued:
		return f.waitFor(t)
	case tasklog.PhaseFailed:
		return f.nextAttempt(t)
	case tasklog.PhaseCancelling:
		return fmt.Sprintf("agent %s to confirm the stop", s.Holder)
	case tasklog.PhaseRunning:
		if s.Paused {
			return "a person's answer"
		}
	case tasklog.PhaseNone, tasklog.PhaseEnded:
	}
	return ""
}

// placement is why a request is held that no agent could be found for yet.
const placement = "placement"

// heldFor says what a task is held for, unless that is a place.
func heldFor(t ledger.Task) string {
	h := t.State.Hold
	if h == nil || h.Reason == "" || h.Reason == placement {
		return ""
	}
	return colon(h.Reason, h.Detail)
}

// nextAttempt says when and why a failed attempt is followed by another.
func (f Facts) nextAttempt(t ledger.Task) string {
	s := t.State
	after := ""
	if t.Fault != nil {
		after = fmt.Sprintf(" after %d: %s", t.Fault.Code, t.Fault.Message)
	}
	if s.Attempt >= s.Allowed || s.Deaths >= tasklog.Poison {
		return "the last word, for no attempt is left" + after
	}
	wait := t.RetryIn(f.Now)
	if s.Silent {
		wait = max(wait, f.settles(t))
	}
	if wait.Round(time.Second) > 0 {
		return fmt.Sprintf("attempt %d of %d starts in %s%s", s.Attempt+1, s.Allowed, span(wait), after)
	}
	return fmt.Sprintf("attempt %d of %d starts at once%s", s.Attempt+1, s.Allowed, after)
}

// settles is how long it takes until whoever held the task has certainly stopped.
func (f Facts) settles(t ledger.Task) time.Duration {
	seen := t.Seen
	if f.Since.After(seen) {
		seen = f.Since
	}
	return max(0, f.Lease+f.Grace-f.Now.Sub(seen))
}

// An obstacle is what keeps one agent from a task. The lower it is, the nearer the agent is to taking it.
type obstacle struct {
	height height
	agent  subject.AgentID
	words  string // behind the agent's id
}

type height int

// The heights, the lowest first.
const (
	none height = iota
	busy
	lapsed
	shut
	silent
	unfit // whatever happens, this agent is not for the task
	ignorant
)

// shownObstacles is how many agents are named in a line.
const shownObstacles = 5

// obstacles are those of all agents that a task may be for, the lowest first.
func (f Facts) obstacles(t ledger.Task) []obstacle {
	var found []obstacle
	for _, a := range f.Agents {
		if a.AgentType == t.Type && (t.Agent == "" || t.Agent == string(a.AgentID)) {
			o := f.obstacle(a, t)
			o.agent = a.AgentID
			found = append(found, o)
		}
	}
	slices.SortStableFunc(found, func(a, b obstacle) int { return cmp.Compare(a.height, b.height) })
	return found
}

// waitFor names in a line the agents that a task waits for, and what keeps each.
func (f Facts) waitFor(t ledger.Task) string {
	found := f.obstacles(t)
	switch {
	case len(found) == 0 && t.Agent != "":
		return fmt.Sprintf("agent %s, which has not been heard yet", t.Agent)
	case len(found) == 0:
		return fmt.Sprintf("an agent of type %s: none has registered yet", t.Type)
	case t.Agent != "":
		return fmt.Sprintf("agent %s: %s", t.Agent, named(found, shownObstacles))
	case len(found) == 1:
		return fmt.Sprintf("the only agent of type %s: %s", t.Type, named(found, shownObstacles))
	}
	return fmt.Sprintf("one of %d agents of type %s: %s", len(found), t.Type, named(found, shownObstacles))
}

// named lists what keeps agents: those that are nearest to taking the task, by id, and how many more there are.
func named(found []obstacle, most int) string {
	near := slices.Clone(found[:min(most, len(found))])
	slices.SortFunc(near, func(a, b obstacle) int { return cmp.Compare(a.agent, b.agent) })
	var list []string
	for _, o := range near {
		list = append(list, string(o.agent)+" "+o.words)
	}
	text := strings.Join(list, ", ")
	if more := len(found) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// obstacle is what keeps an agent from a task.
func (f Facts) obstacle(a registry.Agent, t ledger.Task) obstacle {
	barred := f.shut(a.AgentID)
	until := f.lapsed(t.ID, a.AgentID)
	lack := lacks(a, t)
	refusal, refused := a.Refuses(t.ID)
	switch {
	case a.WorkTypes != nil && !a.Offers(t.WorkType):
		return obstacle{height: ignorant, words: "does not offer " + t.WorkType}
	case lack != "":
		return obstacle{height: unfit, words: lack}
	case !a.Live:
		return obstacle{height: silent, words: f.silence(a)}
	case barred.Kind != "":
		return obstacle{height: shut, words: barred.Text}
	case !a.Ready():
		return obstacle{height: shut, words: colon(a.State, a.Detail)}
	case refused:
		return obstacle{height: lapsed, words: fmt.Sprintf("handed it back: %d: %s", refusal.Code, refusal.Message)}
	case f.Now.Before(until):
		return obstacle{height: lapsed, words: "did not start it and is tried again in " + span(until.Sub(f.Now))}
	}
	if taken := f.taken(a); taken >= a.Slots {
		return obstacle{height: busy, words: fmt.Sprintf("has no free slot (%d of %d)", taken, a.Slots)}
	}
	return obstacle{height: none, words: "is about to take it"}
}

// lacks is what a task asks for and an agent has not, however long one waits.
func lacks(a registry.Agent, t ledger.Task) string {
	var missing []string
	for _, k := range slices.Sorted(maps.Keys(t.On)) {
		if a.Labels[k] != t.On[k] {
			missing = append(missing, "label "+k+"="+t.On[k])
		}
	}
	for _, n := range t.Needs {
		if !slices.Contains(a.Capabilities, n) {
			missing = append(missing, "capability "+n)
		}
	}
	switch r := a.Resources; {
	case len(missing) > 0:
		return "lacks " + strings.Join(missing, " and ")
	case t.MaxMemoryMB > 0 && r.MemoryMB > 0 && t.MaxMemoryMB > r.MemoryMB:
		return fmt.Sprintf("has %d MB of memory, the task may take %d", r.MemoryMB, t.MaxMemoryMB)
	case t.GPUVRAMMB > 0 && r.MemoryMB > 0 && t.GPUVRAMMB > r.GPUVRAMMB:
		return fmt.Sprintf("has %d MB of video memory, the task needs %d", r.GPUVRAMMB, t.GPUVRAMMB)
	}
	return ""
}
