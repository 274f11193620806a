package dispatch

import (
	"cmp"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

func (w *world) agent(id subject.AgentID) (registry.Agent, bool) {
	if w.byID == nil {
		w.byID = map[subject.AgentID]registry.Agent{}
		for _, a := range w.agents {
			w.byID[a.AgentID] = a
		}
	}
	a, ok := w.byID[id]
	return a, ok
}

// can reports whether an agent could do a task, were it live and free.
func can(a registry.Agent, t ledger.Task) bool {
	return a.AgentType == t.Type && a.Offers(t.WorkType) && a.Fits(t.On, t.Needs) && enough(a, t) &&
		(t.Agent == "" || t.Agent == string(a.AgentID))
}

// free is how many slots an agent has left when all that is promised to it has begun. Below 0 when more was.
func (w *world) free(a registry.Agent) int {
	return a.Slots - w.busy()[string(a.AgentID)] - w.coming[string(a.AgentID)]
}

// place finds the agent with most free slots that can do a task now. Where none is free it may stand ahead of an
// agent's slots, one task at each priority: the agent takes it before it takes any other of that priority, which is
// the only way to a slot past a line of requests that all agents share.
func (w *world) place(t ledger.Task) (best subject.AgentID, ok bool) {
	if best, ok = w.open(t); ok {
		return best, true
	}
	most := 0
	for _, a := range w.agents {
		line := ledger.Placing{Agent: string(a.AgentID), Priority: t.State.Priority}
		if a.Slots == 0 || !w.takes(a, t) || w.placed()[line]+w.ahead[line] > 0 {
			continue
		}
		if free := w.free(a); !ok || free > most {
			best, most, ok = a.AgentID, free, true
		}
	}
	return best, ok
}

// open finds the agent with most free slots, among those that have let the task lapse least often.
func (w *world) open(t ledger.Task) (best subject.AgentID, ok bool) {
	least, most := 0, 0
	for _, a := range w.agents {
		free := w.free(a)
		if free <= 0 || !w.takes(a, t) {
			continue
		}
		if n := w.lapsed(t.ID, a.AgentID).times; !ok || n < least || n == least && free > most {
			best, least, most, ok = a.AgentID, n, free, true
		}
	}
	return best, ok
}

// takes reports whether an agent takes a task, once it has a slot for it. One that has just let it lapse does not, nor
// one that is to get no new work.
func (w *world) takes(a registry.Agent, t ledger.Task) bool {
	return a.Live && a.Ready() && can(a, t) && w.shut(a.AgentID).Kind == "" && !w.now.Before(w.lapsed(t.ID, a.AgentID).until)
}

// stuck takes a task back from the agent that it was put to, if that is to be done. The time in which
// all the agent's slots are taken does not count: it is to begin then with what it was given. But who can begin at
// once goes before who cannot.
func (w *world) stuck(t ledger.Task) (action, bool) {
	a, known := w.agent(subject.AgentID(t.State.Target))
	if s := w.shut(subject.AgentID(t.State.Target)); s.Kind != "" && (s.Until.IsZero() || s.Until.Sub(w.now) > w.lease) {
		return hold("agent " + t.State.Target + " gets no new work: " + cmp.Or(s.Text, s.Kind)), true
	}
	if w.now.Sub(later(later(t.Seen, w.since), a.Full)) > w.lease {
		back := hold("agent " + t.State.Target + " did not start it within a lease")
		back.lapsed = subject.AgentID(t.State.Target)
		return back, true
	}
	if known && a.Free() == 0 && w.waited(t) > w.grace {
		if other, ok := w.open(t); ok && other != a.AgentID {
			return hold("agent " + t.State.Target + " has no free slot, " + string(other) + " has"), true
		}
	}
	return action{}, false
}

// handedBack takes a task back at once when an agent says that it has refused it: no attempt was made. A request that
// any agent may take is then for those only that have not refused it.
func (w *world) handedBack(t ledger.Task) (action, bool) {
	for _, a := range w.agents {
		if !a.Live || a.AgentType != t.Type || t.State.Target != subject.Any && t.State.Target != string(a.AgentID) {
			continue
		}
		r, ok := a.Refuses(t.ID)
		if !ok || w.now.Before(w.lapsed(t.ID, a.AgentID).until) {
			continue // what it says still is what it has said before
		}
		back := hold("agent " + string(a.AgentID) + " has refused it: " + r.Message)
		back.lapsed, back.refused = a.AgentID, r.Code
		return back, true
	}
	return action{}, false
}

// anyoneCan reports whether a request may stand where any agent of its type takes it: while every live one offers the
// work type, has what the task needs and has not just refused it, or none lives, and no label or capability is asked
// for.
func (w *world) anyoneCan(t ledger.Task) bool {
	if len(t.On) > 0 || len(t.Needs) > 0 {
		return false
	}
	for _, a := range w.agents {
		if a.Live && a.AgentType == t.Type && (!a.Offers(t.WorkType) || !enough(a, t) || w.now.Before(w.lapsed(t.ID, a.AgentID).until)) {
			return false
		}
	}
	return true
}

func (w *world) someoneFree(t ledger.Task) bool {
	for _, a := range w.agents {
		if w.takes(a, t) && a.Free() > 0 {
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
		w.ahead[ledger.Placing{Agent: a.target, Priority: t.State.Priority}]++
	}
}
