package why

import (
	"fmt"
	"slices"
	"strings"

	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// Agent says why an agent does what it does, or nothing: whether it lives, what keeps work from it, what it holds, and
// why it gets none of the tasks that are open.
func Agent(a registry.Agent, open []ledger.Task, f Facts) view.Why {
	barred := f.shut(a.AgentID)
	w := view.Why{ID: string(a.AgentID), State: agentState(a, barred), Because: []string{}}
	say := func(format string, args ...any) { w.Because = append(w.Because, fmt.Sprintf(format, args...)) }
	switch {
	case a.Stopped():
		say("%s %s: its runner was stopped", a.AgentID, f.silence(a))
	case !a.Live:
		say("%s is %s: what it holds may still be running", a.AgentID, f.silence(a))
	case a.State == message.StateBroken:
		say("%s lives, but cannot do its work: %s", a.AgentID, a.Detail)
	case barred.Kind != "":
		say("%s is %s", a.AgentID, barred.Text)
	case !a.Ready():
		say("%s", colon(fmt.Sprintf("%s says that it is %s", a.AgentID, a.State), a.Detail))
	default:
		say("%s is ready: it was heard %s", a.AgentID, f.ago(a.Heard))
	}
	if barred.Kind != "" && (!a.Live || a.State == message.StateBroken) {
		say("besides it is %s", barred.Text)
	}
	w.Because = append(w.Because, f.holds(a, open)...)
	waiting, mine := f.waiting(a, open)
	w.Because = append(w.Because, waiting)
	w.Next = f.agentNext(a, barred, mine)
	return w
}

func agentState(a registry.Agent, barred gate.Shut) string {
	switch {
	case a.Stopped():
		return a.State
	case !a.Live:
		return "silent"
	case a.State == message.StateBroken:
		return a.State
	case barred.Kind == gate.Draining:
		return message.StateDraining
	case barred.Kind != "":
		return "paused"
	case a.State == "":
		return message.StateReady
	}
	return a.State
}

// holds says which slots are taken, by what.
func (f Facts) holds(a registry.Agent, open []ledger.Task) []string {
	text := fmt.Sprintf("%d of %s taken", f.taken(a), some(a.Slots, "slot"))
	var list []string
	for _, r := range f.lists(a) {
		said := fmt.Sprintf("%s (attempt %d)", short(r.TaskID), r.Attempt)
		if i := slices.IndexFunc(open, func(t ledger.Task) bool { return t.ID == r.TaskID }); i >= 0 {
			said = f.running(open[i], r.Attempt)
		}
		list = append(list, said)
	}
	var odd []string
	for _, t := range open {
		switch s := t.State; {
		case !holds(t, a) || a.Lists(t.ID, s.Attempt, s.Boot):
		case t.Seen.After(a.Heard): // no heartbeat can have told of it
			list = append(list, f.running(t, s.Attempt))
		default:
			odd = append(odd, fmt.Sprintf("the log says that it holds %s (attempt %d), its heartbeat does not", short(t.ID), s.Attempt))
		}
	}
	return append([]string{colon(text, strings.Join(list, ", "))}, odd...)
}

// running names what an agent does, and since when.
func (f Facts) running(t ledger.Task, attempt int) string {
	return fmt.Sprintf("%s %s (attempt %d, since %s, %s)", short(t.ID), t.WorkType, attempt, span(f.Now.Sub(t.StartedAt)), t.StateName())
}

// waiting says what keeps the agent from the tasks of its type that wait; mine is how many of them it could do.
func (f Facts) waiting(a registry.Agent, open []ledger.Task) (text string, mine int) {
	all, kept := 0, map[string]int{}
	for _, t := range open {
		p := t.State.Phase
		if t.Type != a.AgentType || p != tasklog.PhaseHeld && p != tasklog.PhaseQueued {
			continue
		}
		all++
		target := t.State.Target
		switch o := f.obstacle(a, t); {
		case t.Agent != "" && t.Agent != string(a.AgentID):
			kept["are for another agent by name"]++
		case o.height >= unfit:
			kept[string(a.AgentID)+" "+o.words]++
		case p == tasklog.PhaseHeld && heldFor(t) != "":
			kept["are held for "+t.State.Hold.Reason]++
		case p == tasklog.PhaseQueued && target != subject.Any && target != string(a.AgentID):
			kept["were put to another agent"]++
		default:
			mine++
		}
	}
	if all == 0 {
		return fmt.Sprintf("no task for agents of type %s waits", a.AgentType), 0
	}
	var list []string
	if mine > 0 {
		list = append(list, fmt.Sprintf("%d it could do", mine))
	}
	for why, n := range sorted(kept) {
		list = append(list, fmt.Sprintf("%d it could not: %s", n, why))
	}
	return fmt.Sprintf("%s for agents of type %s waiting: %s", some(all, "task"), a.AgentType, strings.Join(list, "; ")), mine
}

// sorted yields the most frequent first.
func sorted(counts map[string]int) func(func(string, int) bool) {
	return func(yield func(string, int) bool) {
		var keys []string
		for k := range counts {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b string) int {
			if d := counts[b] - counts[a]; d != 0 {
				return d
			}
			return strings.Compare(a, b)
		})
		for _, k := range keys {
			if !yield(k, counts[k]) {
				return
			}
		}
	}
}

// agentNext says when it gets work again, or what a person can do.
func (f Facts) agentNext(a registry.Agent, barred gate.Shut, mine int) string {
	id := string(a.AgentID)
	in := ""
	if !barred.Until.IsZero() {
		in = "in " + span(barred.Until.Sub(f.Now))
	}
	switch {
	case a.Stopped() && a.Host != "":
		return "it gets work when its runner is started again on " + a.Host
	case a.Stopped():
		return "it gets work when its runner is started again"
	case !a.Live && a.Host != "":
		return "it gets work when it is heard again: look whether its runner runs on " + a.Host
	case !a.Live:
		return "it gets work when it is heard again: look whether its runner runs"
	case a.State == message.StateBroken:
		return "it gets work when it says that it is well: mend what it names, on " + a.Host
	case barred.Kind == gate.Tripped:
		return join("it is asked for a sign of life "+in, "or at once after orchestrator breaker reset "+id)
	case barred.Kind == gate.Paused && in != "":
		return fmt.Sprintf("it gets work again %s, or after orchestrator agent resume %s", in, id)
	case barred.Kind != "":
		return "it gets work again after orchestrator agent resume " + id
	case !a.Ready():
		return "it ends when what it holds has ended; its runner was told so on its host"
	case f.taken(a) >= a.Slots && mine > 0:
		return "it begins the next as soon as a slot is free"
	case mine > 0:
		return "it begins the next within moments"
	}
	if f.taken(a) >= a.Slots {
		return "it begins the next task that it can do as soon as a slot is free"
	}
	return "it begins the next task that it can do"
}
