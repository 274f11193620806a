package dispatch

import (
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
)

// A need is something that a task must find on its agent's host, in MB.
type need struct {
	name     string // as the protocol has it in hints
	required int
	has      func(message.HostResources) int // in all
	free     func(message.HostResources) int
}

func needs(t ledger.Task) (list []need) {
	if t.MaxMemoryMB > 0 {
		list = append(list, need{
			name: "max_memory_mb", required: t.MaxMemoryMB,
			has:  func(r message.HostResources) int { return r.MemoryMB },
			free: func(r message.HostResources) int { return r.MemoryFreeMB },
		})
	}
	if t.GPUVRAMMB > 0 {
		vram := func(r message.HostResources) int { return r.GPUVRAMMB }
		list = append(list, need{name: "gpu_vram_mb", required: t.GPUVRAMMB, has: vram, free: vram})
	}
	return list
}

// met reports whether an agent's host could have what is needed, were nothing else there. Of one that says nothing of
// its memory the agent itself is the judge: it refuses what it cannot do.
func (n need) met(a registry.Agent) bool {
	return a.Resources.MemoryMB == 0 || n.has(a.Resources) >= n.required
}

// enough reports whether an agent's host could have all that a task needs, were nothing else there.
func enough(a registry.Agent, t ledger.Task) bool {
	for _, n := range needs(t) {
		if !n.met(a) {
			return false
		}
	}
	return true
}

// impossible is the fault of a task that needs more than any agent of its type which was ever registered could have;
// nil for any other. A lease is left to those who are just about to register.
func (w *world) impossible(t ledger.Task) *fault.Fault {
	list := needs(t)
	if len(list) == 0 || w.waited(t) <= w.lease {
		return nil
	}
	for _, n := range list {
		known, most := false, 0
		for _, a := range w.agents {
			if a.AgentType != t.Type || t.Agent != "" && t.Agent != string(a.AgentID) {
				continue
			}
			if n.met(a) {
				known = false
				break
			}
			known, most = true, max(most, n.has(a.Resources))
		}
		if known {
			return lacking(n, most, "no agent that was ever registered could have as much")
		}
	}
	return nil
}

// starved is the fault of a task whose time in the queue was over while no agent that could do it otherwise had what it
// needs; nil when it waited for something else.
func (w *world) starved(t ledger.Task) *fault.Fault {
needs:
	for _, n := range needs(t) {
		found, most := false, 0
		for _, a := range w.agents {
			if !a.Live || a.AgentType != t.Type || !a.Offers(t.WorkType) || !a.Fits(t.On, t.Needs) || t.Agent != "" && t.Agent != string(a.AgentID) {
				continue
			}
			available := n.has(a.Resources)
			if n.met(a) {
				if w.lapsed(t.ID, a.AgentID).code != fault.ResourceLimitExceeded {
					continue needs // it could have begun there
				}
				available = min(n.free(a.Resources), n.required-1) // it was refused: more is not there
			}
			found, most = true, max(most, available)
		}
		if found {
			return lacking(n, most, "its time in the queue is over, and no agent had as much")
		}
	}
	return nil
}

func lacking(n need, available int, why string) *fault.Fault {
	return fault.New(fault.ResourceLimitExceeded, "%d MB of %s are needed, %d MB are there: %s", n.required, n.name, available, why).
		With("limit_name", n.name).With("available", available).With("required", n.required)
}
