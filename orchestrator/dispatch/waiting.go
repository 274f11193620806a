package dispatch

import (
	"time"

	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/why"
	"chiffon/pkg/subject"
)

// Facts is what reasons rest on, as far as this orchestrator knows it.
func (d *Dispatcher) Facts(now time.Time) why.Facts {
	return why.Facts{
		Now: now, Since: d.started(), Lease: d.cfg.Lease, Grace: d.cfg.Grace,
		Silence: d.cfg.Lease + 2*d.cfg.Heartbeat, LostAfter: d.cfg.LostAfter,
		Agents: d.agents.Agents(now), Listed: d.agents.Listed,
		Held: d.ledger.Held, Task: d.ledger.Get,
		Shut: func(id subject.AgentID) gate.Shut { return d.cfg.Shut(id, now) },
		Lapsed: func(task subject.TaskID, agent subject.AgentID) time.Time {
			_, until := d.Lapsed(task, agent)
			return until
		},
	}
}
