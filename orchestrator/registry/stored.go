package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/together"
)

// Run stores what changed, and takes in what other orchestrators store, until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	return together.Run(ctx, r.follow, r.keep)
}

func (r *Registry) follow(ctx context.Context) error {
	for v, err := range broker.Changes(ctx, r.kv, "*") {
		if err != nil {
			return fmt.Errorf("registered agents: %w", err)
		}
		if v.Data != nil {
			r.restore(v.Key, v.Data)
		}
	}
	return nil
}

// keep stores what changed.
func (r *Registry) keep(ctx context.Context) error {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-again.C:
		}
		if err := r.save(ctx); err != nil {
			r.log.Warn("registered agents are not stored", "error", err)
			again.Reset(storeAgain)
		}
	}
}

// storeAgain is when to try again what could not be stored.
const storeAgain = 5 * time.Second

func (r *Registry) save(ctx context.Context) error {
	r.mu.Lock()
	todo := map[subject.AgentID]stored{}
	for id := range r.unsaved {
		if r.newer[id] {
			continue // what is stored of it says more than this program knows
		}
		a := r.agents[id]
		hb := a.Heartbeat
		hb.Running, hb.Refused = nil, nil
		todo[id] = stored{Version: version, FirstSeen: a.FirstSeen, Heartbeat: hb}
	}
	clear(r.unsaved)
	r.mu.Unlock()
	var errs []error
	for id, s := range todo {
		data, err := json.Marshal(s)
		if err == nil {
			_, err = r.kv.Put(ctx, string(id), data)
		}
		if err != nil {
			r.mu.Lock()
			r.unsaved[id] = true
			r.mu.Unlock()
			errs = append(errs, fmt.Errorf("agent %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

// version is that of a stored agent. One of a newer version is known here only as far as it is heard, and is not
// overwritten: the orchestrator that stored it goes on with it.
const version = 1

// stored is what the bucket holds of an agent.
type stored struct {
	Version   int               `json:"v"`
	FirstSeen time.Time         `json:"first_seen"`
	Heartbeat message.Heartbeat `json:"heartbeat"`
}

func (r *Registry) restore(key string, data []byte) {
	var known struct {
		Version int `json:"v"`
	}
	var s stored
	err := json.Unmarshal(data, &known)
	if err == nil && known.Version <= version {
		err = json.Unmarshal(data, &s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newer[subject.AgentID(key)] = known.Version > version
	if err != nil || s.Version != version {
		r.log.Warn("registered agent is not read", "agent_id", key, "version", known.Version, "error", err)
		return
	}
	if a, ok := r.agents[subject.AgentID(key)]; ok && !a.Heard.IsZero() {
		return // heard here: newer than any store
	}
	a := &Agent{Heartbeat: s.Heartbeat, FirstSeen: s.FirstSeen}
	a.Running, a.Refused = nil, nil // of another time
	a.compile(r.log)
	a.content = content(a)
	r.agents[subject.AgentID(key)] = a
	r.signal()
}

// store has Run store what is not stored yet.
func (r *Registry) store() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// content is what of an agent is worth storing.
func content(a *Agent) string {
	hb := a.Heartbeat
	hb.Running, hb.Refused, hb.Resources = nil, nil, message.HostResources{}
	data, err := json.Marshal(hb)
	if err != nil {
		return err.Error() // then it cannot be stored either, which save says
	}
	return string(data)
}
