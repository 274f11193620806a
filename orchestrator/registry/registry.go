// Package registry knows which agents there are: what each offers, and when it was last heard. It knows nothing of
// tasks. What an agent is and offers is kept in a bucket; that it lives is in memory, and forgotten with the process.
package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/schema"
	"chiffon/pkg/subject"
)

// An Agent is one registered identity as it was heard last.
type Agent struct {
	message.Heartbeat
	FirstSeen time.Time
	Heard     time.Time // when this process heard it last, monotonic; zero if never
	Live      bool      // heard within a lease, and not to have stopped
	Full      time.Time // when it last said that it was ready and every slot taken, monotonic; zero if never
	schemas   map[string]*schema.Schema
	content   string    // what is stored of it, in one comparable value
	asked     time.Time // when this was true
}

// Offers reports whether the agent knows how to do a work type.
func (a Agent) Offers(workType string) bool {
	return slices.ContainsFunc(a.WorkTypes, func(o message.Offer) bool { return o.Name == workType })
}

// Attempts is how many executions of a work type the agent allows; 0 when it does not offer it.
func (a Agent) Attempts(workType string) int {
	for _, o := range a.WorkTypes {
		if o.Name == workType {
			return o.Attempts
		}
	}
	return 0
}

// Fits reports whether the agent has every label and capability asked for.
func (a Agent) Fits(on map[string]string, needs []string) bool {
	for k, v := range on {
		if a.Labels[k] != v {
			return false
		}
	}
	for _, n := range needs {
		if !slices.Contains(a.Capabilities, n) {
			return false
		}
	}
	return true
}

// Ready reports whether the agent takes work, by its own word. One that says nothing does.
func (a Agent) Ready() bool { return a.State == "" || a.State == message.StateReady }

// Stopped reports whether the agent's runner has ended in order, by its own last word.
func (a Agent) Stopped() bool { return a.State == message.StateStopped }

// Ended says when a runner that has ended in order did so: "ended in order at 14:02".
func (a Agent) Ended(now time.Time) string {
	if a.Heard.IsZero() {
		return "ended in order" // before this orchestrator listened
	}
	return "ended in order at " + view.Clock(a.Heard, now)
}

// Refuses finds what an agent says of a request that it has handed back before its start; ok is false if nothing.
func (a Agent) Refuses(id subject.TaskID) (r message.Refusal, ok bool) {
	for _, r := range a.Refused {
		if r.TaskID == id {
			return r, true
		}
	}
	return r, false
}

// Free is how many slots are free by the agent's own word.
func (a Agent) Free() int { return max(0, a.Slots-len(a.Running)) }

// Lists reports whether the agent says that it holds an attempt.
func (a Agent) Lists(id subject.TaskID, attempt int, boot uint64) bool {
	return slices.Contains(a.Running, message.Running{TaskID: id, Attempt: attempt, Boot: boot})
}

// A Registry is the agents by id. Safe for concurrent use; Run keeps it stored.
type Registry struct {
	lease time.Duration
	log   *slog.Logger
	kv    jetstream.KeyValue

	mu      sync.RWMutex
	agents  map[subject.AgentID]*Agent
	listed  map[message.Running]time.Time // when an attempt was last in a heartbeat
	unsaved map[subject.AgentID]bool
	newer   map[subject.AgentID]bool // what is stored of them is of a newer version
	changed chan struct{}            // closed and replaced when an agent comes, goes or changes what it offers
	wake    chan struct{}
}

// Open reads the stored agents. An agent counts as live for one lease after it was heard.
func Open(ctx context.Context, kv jetstream.KeyValue, lease time.Duration, log *slog.Logger) (*Registry, error) {
	r := &Registry{
		lease: lease, log: log, kv: kv,
		agents: map[subject.AgentID]*Agent{}, unsaved: map[subject.AgentID]bool{}, newer: map[subject.AgentID]bool{},
		listed:  map[message.Running]time.Time{},
		changed: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	for v, err := range broker.Values(ctx, kv, "*") {
		if err != nil {
			return nil, fmt.Errorf("registered agents: %w", err)
		}
		r.restore(v.Key, v.Data)
	}
	return r, nil
}

func (a *Agent) compile(log *slog.Logger) {
	a.schemas = map[string]*schema.Schema{}
	for _, o := range a.WorkTypes {
		if len(o.Parameters) == 0 {
			continue
		}
		s, err := schema.Compile(o.Parameters)
		if err != nil {
			log.Warn("schema of a work type is not read", "agent_id", a.AgentID, "work_type", o.Name, "error", err)
			continue
		}
		a.schemas[o.Name] = s
	}
}

// A Verdict is what a heartbeat brought about.
type Verdict struct {
	SendWork  bool         // the agent has to send its work types again
	StopAll   bool         // an earlier incarnation: it has to end everything
	Restarted bool         // a new incarnation was heard for the first time
	Refused   *fault.Fault // another live runner has this id
}

// twin is how long after a heartbeat another runner with the same id is refused.
const twin = 15 * time.Second

// Heard takes a heartbeat in.
func (r *Registry) Heard(hb message.Heartbeat, now time.Time) Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.agents[hb.AgentID]
	heard := known && !old.Heard.IsZero()
	switch {
	case heard && old.Instance != hb.Instance && now.Sub(old.Heard) < twin && !old.Stopped():
		return Verdict{Refused: fault.New(fault.AuthenticationFailed, "agent_id %s is in use by a live runner on %s: give this one another AGENTRUNNER_ID", hb.AgentID, old.Host).
			With("agent_id", string(hb.AgentID)).With("token_status", "agent_id in use")}
	case known && old.Instance == hb.Instance && hb.Boot < old.Boot:
		return Verdict{StopAll: true}
	case known && old.Instance == hb.Instance && hb.Boot == old.Boot && old.Stopped():
		return Verdict{} // overtaken by its last word
	}
	v := Verdict{Restarted: !heard || old.Boot != hb.Boot}
	next := &Agent{Heartbeat: hb, FirstSeen: now, Heard: now}
	if known {
		next.FirstSeen, next.Full = old.FirstSeen, old.Full
	}
	if next.Ready() && next.Free() == 0 {
		next.Full = now
	}
	switch {
	case hb.WorkTypes != nil:
		next.compile(r.log)
	case known && old.WorkDigest == hb.WorkDigest:
		next.WorkTypes, next.schemas = old.WorkTypes, old.schemas
	default:
		v.SendWork = true
	}
	next.content = content(next)
	r.agents[hb.AgentID] = next
	for _, held := range hb.Running {
		r.listed[held] = now
	}
	changed := !known || old.content != next.content
	if changed {
		r.unsaved[hb.AgentID] = true
		r.store()
	}
	if changed || v.Restarted || len(old.Running) != len(hb.Running) || !slices.Equal(old.Refused, hb.Refused) || now.Sub(old.Heard) >= r.lease {
		r.signal()
	}
	return v
}

// Listed tells when a heartbeat last listed an attempt; zero if none has.
func (r *Registry) Listed(id subject.TaskID, attempt int, boot uint64) time.Time {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.listed[message.Running{TaskID: id, Attempt: attempt, Boot: boot}]
}

// Forget drops what was listed of tasks that are over.
func (r *Registry) Forget(over func(subject.TaskID) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.listed, func(held message.Running, _ time.Time) bool { return over(held.TaskID) })
}

func (r *Registry) signal() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Wake tells whoever waits for a change that one may have come from elsewhere: an agent may get work again, or may not.
func (r *Registry) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signal()
}

// Changed returns a channel that is closed at the next change: an agent came, changed, or finished something.
func (r *Registry) Changed() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changed
}

// Agents lists every agent by id.
func (r *Registry) Agents(now time.Time) []Agent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]Agent, 0, len(r.agents))
	for _, id := range slices.Sorted(maps.Keys(r.agents)) {
		all = append(all, r.snapshot(r.agents[id], now))
	}
	return all
}

// Agent finds one agent.
func (r *Registry) Agent(id subject.AgentID, now time.Time) (Agent, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, ok := r.agents[id]
	if !ok {
		return Agent{}, false
	}
	return r.snapshot(a, now), true
}

func (r *Registry) snapshot(a *Agent, now time.Time) Agent {
	s := *a
	s.asked = now
	s.Live = !a.Heard.IsZero() && now.Sub(a.Heard) < r.lease && !a.Stopped()
	return s
}

// Check holds parameters against the schemas of the agents that offer a work type: nil when one of them takes them or
// no schema is known.
func (a Agent) Check(workType string, parameters json.RawMessage) *fault.Fault {
	s := a.schemas[workType]
	if s == nil {
		return nil
	}
	return s.Check(parameters)
}

// View is the agent as people see it.
func (a Agent) View() view.Agent {
	v := view.Agent{
		AgentID: string(a.AgentID), AgentType: string(a.AgentType), State: cmp.Or(a.State, message.StateReady), Detail: a.Detail, Host: a.Host,
		Version: a.Version, Slots: a.Slots, Labels: a.Labels, FirstSeen: a.FirstSeen,
		Running: []view.Holding{}, Capabilities: []string{}, WorkTypes: []view.WorkType{},
		Resources: view.HostResources(a.Resources),
	}
	v.Capabilities = append(v.Capabilities, a.Capabilities...)
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	if !a.Heard.IsZero() {
		v.LastSeen = new(a.Heard.UTC())
	}
	switch {
	case a.Stopped():
		v.Detail = "it " + a.Ended(a.asked)
	case !a.Live:
		v.State, v.Detail = "silent", ""
	}
	for _, t := range a.Running {
		v.Running = append(v.Running, view.Holding{TaskID: string(t.TaskID), Attempt: t.Attempt})
	}
	for _, o := range a.WorkTypes {
		v.WorkTypes = append(v.WorkTypes, view.WorkType(o))
	}
	return v
}
