package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/breaker"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/together"
)

// A Record stands in the audit for each word of a person.
type Record struct {
	Time    time.Time       `json:"time"`
	Who     string          `json:"who"`
	What    string          `json:"what"` // pause, drain, resume or reset
	Agent   subject.AgentID `json:"agent_id"`
	Until   *time.Time      `json:"until,omitempty"`
	Message string          `json:"message,omitempty"`
}

// operator is the kind of these records.
const operator = "operator"

// Pause keeps new work from an agent until a moment.
func (g *Gate) Pause(ctx context.Context, id subject.AgentID, until time.Time, text, by string) error {
	return g.say(ctx, id, word{Kind: Paused, Until: until.UTC(), Message: text, By: by}, "pause")
}

// Drain keeps new work from an agent until Resume. What it still runs at the deadline its runner stops.
func (g *Gate) Drain(ctx context.Context, id subject.AgentID, deadline time.Time, text, by string) error {
	return g.say(ctx, id, word{Kind: Draining, Until: deadline.UTC(), Message: text, By: by}, "drain")
}

// Resume lets an agent have work again, as far as people are concerned. One that nobody has paused stays as it is.
func (g *Gate) Resume(ctx context.Context, id subject.AgentID, by string) error {
	w := g.word(id)
	if err := g.forget(ctx, id, 0); err != nil {
		return fmt.Errorf("resume agent %s: %w", id, err)
	}
	g.take(id, nil, w.revision)
	g.poke(id)
	return g.audit(ctx, Record{Who: by, What: "resume", Agent: id})
}

// Reset closes an agent's breaker.
func (g *Gate) Reset(ctx context.Context, id subject.AgentID, by string) (view.Breaker, error) {
	b, err := g.cfg.Breakers.Reset(ctx, id)
	if err != nil {
		return b, fmt.Errorf("reset the breaker of agent %s: %w", id, err)
	}
	return b, g.audit(ctx, Record{Who: by, What: "reset", Agent: id})
}

// say stores a word over whatever was said before: the last one counts.
func (g *Gate) say(ctx context.Context, id subject.AgentID, w word, what string) error {
	w.Version, w.Since = version, time.Now().UTC()
	data, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("%s agent %s: %w", what, id, err)
	}
	revision, err := g.kv.Put(ctx, prefix+string(id), data)
	if err != nil {
		return fmt.Errorf("%s agent %s: %w", what, id, err)
	}
	g.take(id, data, revision)
	g.poke(id)
	return g.audit(ctx, Record{Who: w.By, What: what, Agent: id, Until: &w.Until, Message: w.Message})
}

func (g *Gate) audit(ctx context.Context, r Record) error {
	r.Time = time.Now().UTC()
	g.cfg.Log.Info("a person has spoken of an agent", "agent_id", r.Agent, "what", r.What, "by", r.Who, "until", r.Until, "message", r.Message)
	return g.cfg.Client.Audit(ctx, operator, r)
}

// poke has an agent ask what is wanted of it, so that it knows at once.
func (g *Gate) poke(id subject.AgentID) {
	if err := g.cfg.Client.Publish(subject.Poke(id), nil); err != nil {
		g.cfg.Log.Warn("agent is not poked", "agent_id", id, "error", err)
	}
}

// forget removes what is stored of an agent; with a revision only if it is still that.
func (g *Gate) forget(ctx context.Context, id subject.AgentID, revision uint64) error {
	var opts []jetstream.KVDeleteOpt
	if revision != 0 {
		opts = append(opts, jetstream.LastRevision(revision))
	}
	return g.kv.Delete(ctx, prefix+string(id), opts...)
}

// Run follows what is stored, and tells agents when their pause is over, until ctx ends.
func (g *Gate) Run(ctx context.Context) error { return together.Run(ctx, g.follow, g.tidy) }

func (g *Gate) follow(ctx context.Context) error {
	for v, err := range broker.Changes(ctx, g.kv, prefix+"*") {
		if err != nil {
			return fmt.Errorf("paused agents: %w", err)
		}
		g.take(agentOf(v.Key), v.Data, v.Revision)
		select {
		case g.said <- struct{}{}: // the first pause to be over may be another now
		default:
		}
	}
	return nil
}

func (g *Gate) tidy(ctx context.Context) error {
	over := time.NewTimer(0)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.said:
		case <-over.C:
			g.expire(ctx, time.Now())
		}
		over.Reset(g.next(time.Now()))
	}
}

// most is how long Run sleeps at most: a clock that was set shows within it.
const most = 5 * time.Second

// next is how long it is until the first pause is over.
func (g *Gate) next(now time.Time) time.Duration {
	g.mu.RLock()
	defer g.mu.RUnlock()
	wait := most
	for _, w := range g.words {
		if w.Kind == Paused && !w.unread {
			wait = min(wait, max(w.Until.Sub(now), 0))
		}
	}
	return wait
}

// expire ends the pauses that are over. Where the broker does not hear of it now, that is only tidied up later: a pause
// that is over keeps nobody from work.
func (g *Gate) expire(ctx context.Context, now time.Time) {
	g.mu.Lock()
	over := map[subject.AgentID]word{}
	for id, w := range g.words {
		if w.Kind == Paused && !w.unread && !w.holds(now) {
			over[id] = w
			g.words[id] = word{revision: w.revision}
		}
	}
	g.mu.Unlock()
	for id, w := range over {
		g.cfg.Log.Info("pause of an agent is over", "agent_id", id)
		if err := g.forget(ctx, id, w.revision); err != nil {
			g.cfg.Log.Debug("pause that is over is not removed", "agent_id", id, "error", err)
		}
		g.poke(id)
	}
	if len(over) > 0 {
		g.cfg.Agents.Wake()
	}
}

// Tell puts into a heartbeat's reply what the agent is to know.
func (g *Gate) Tell(id subject.AgentID, now time.Time, reply *message.HeartbeatReply) {
	w := g.word(id)
	s := g.Shut(id, now)
	reply.Notice = s.Text
	switch s.Kind {
	case Draining:
		reply.Drain, reply.DrainUntil = true, &w.Until
	case Paused, Tripped:
		until := s.Until
		if until.IsZero() {
			until = now.Add(breaker.Cooldown) // nobody knows; it is told anew with every heartbeat
		}
		reply.PausedUntil = new(until.UTC())
	}
}

// Describe puts into the view of an agent what it is shut for.
func (g *Gate) Describe(v *view.Agent, now time.Time) {
	id := subject.AgentID(v.AgentID)
	if b, _ := g.cfg.Breakers.View(id); b.State != "closed" || b.Failures > 0 {
		v.Breaker = &b
	}
	s := g.Shut(id, now)
	switch s.Kind {
	case "":
		return
	case Draining:
		w := g.word(id)
		v.DrainUntil = &w.Until
	case Paused, Tripped:
		if !s.Until.IsZero() {
			v.PausedUntil = new(s.Until.UTC())
		}
	}
	if v.State == message.StateReady || v.State == message.StateDraining {
		v.State = Paused
		if s.Kind == Draining {
			v.State = message.StateDraining
		}
	}
	if v.Detail != "" {
		v.Detail += "; "
	}
	v.Detail += s.Text
}
