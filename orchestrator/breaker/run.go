package breaker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
	"chiffon/pkg/together"
)

// A keeper counts and asks, while its orchestrator leads. Its fields belong to one goroutine, but for poked.
type keeper struct {
	*Set
	leading bool
	pending []seen                    // not counted yet; of the last minute, while another leads
	starts  map[subject.TaskID]uint64 // the entries by which attempts began that have not ended
	asked   map[subject.AgentID]time.Time
	paused  map[subject.AgentType]time.Time // until when a type's consumers stand still; zero when they do not
	last    time.Time

	pokes sync.Mutex
	poked map[subject.AgentID]time.Time // pokes that are not answered yet
}

// A seen fact knows when its attempt began.
type seen struct {
	ledger.Fact
	start uint64
}

// A keeper looks every lookEvery. A pause of stopped in its own ticks means that this process was stopped: what it
// believes of others' silence is void then.
const (
	lookEvery = 250 * time.Millisecond
	stopped   = 5 * time.Second
	keepFacts = time.Minute
)

// Run follows what is stored and, while this orchestrator leads, counts and asks for signs of life, until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	k := &keeper{
		Set: s, asked: map[subject.AgentID]time.Time{}, paused: map[subject.AgentType]time.Time{},
		poked: map[subject.AgentID]time.Time{}, starts: map[subject.TaskID]uint64{}, last: time.Now(),
	}
	return together.Run(ctx, s.follow, k.listen, k.run)
}

// follow takes in what other orchestrators store.
func (s *Set) follow(ctx context.Context) error {
	for v, err := range broker.Changes(ctx, s.kv, prefix+"*") {
		if err != nil {
			return fmt.Errorf("breakers: %w", err)
		}
		if v.Data == nil {
			v.Revision = 0 // whatever comes is later
		}
		s.take(agentOf(v.Key), v.Data, v.Revision)
	}
	return nil
}

// listen notes pokes of agents that live: what does not answer them has failed.
func (k *keeper) listen(ctx context.Context) error {
	return k.cfg.Client.Serve(ctx, subject.AllPokes, func(_ context.Context, subj string, _ []byte) []byte {
		id, now := subject.AgentOf(subj), time.Now()
		a, known := k.cfg.Agents.Agent(id, now)
		if !known || !a.Live {
			return nil // nobody expects an answer
		}
		k.pokes.Lock()
		defer k.pokes.Unlock()
		if _, waiting := k.poked[id]; !waiting {
			k.poked[id] = now
		}
		return nil
	})
}

func (k *keeper) run(ctx context.Context) error {
	facts := k.cfg.Ledger.Facts(ctx)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-facts:
			k.see(f)
			if len(facts) > 0 {
				continue
			}
		case <-tick.C:
		}
		k.look(ctx, time.Now())
	}
}

// see takes note of a fact that is to be counted, or of an attempt's beginning.
func (k *keeper) see(f ledger.Fact) {
	if f.Kind == ledger.FactStarted {
		k.starts[f.Task] = f.Seq
		return
	}
	k.pending = append(k.pending, seen{f, k.starts[f.Task]})
	if f.Kind != ledger.FactVoid {
		delete(k.starts, f.Task)
	}
}

func (k *keeper) look(ctx context.Context, now time.Time) {
	if now.Sub(k.last) > stopped || !k.cfg.Client.Connected() {
		clear(k.asked) // they are asked again
		k.forgetPokes()
	}
	k.last = now
	if !k.cfg.Leads() {
		k.leading = false
		k.forgetPokes()
		for len(k.pending) > 0 && now.Sub(k.pending[0].Time) > keepFacts {
			k.pending = k.pending[1:]
		}
		return
	}
	if !k.leading {
		k.leading = true
		clear(k.asked)
		clear(k.paused)
	}
	for len(k.pending) > 0 && k.count(ctx, k.pending[0]) {
		k.pending = k.pending[1:]
	}
	for id, h := range k.known() {
		k.ask(ctx, id, h, now)
	}
	k.unanswered(ctx, now)
	k.pauseTypes(ctx, now)
}

func (k *keeper) forgetPokes() {
	k.pokes.Lock()
	defer k.pokes.Unlock()
	clear(k.poked)
}

// count takes in one fact of the log; false means that it has to come again.
func (k *keeper) count(ctx context.Context, f seen) bool {
	fact, counts := about(f)
	if !counts {
		return true
	}
	return k.move(ctx, f.Agent, func(r record) record { return r.count(k.cfg.Cooldown, fact) })
}

// about is what a fact of the log means to its agent's breaker. counts is false when that is nothing.
func about(f seen) (fact Fact, counts bool) {
	fact = Fact{Seq: f.Seq, Start: f.start, At: f.Time}
	switch f.Kind {
	case ledger.FactEnded:
		fact.Kind = Success
	case ledger.FactFailed:
		fact.Kind = Success
		if f.Code == fault.Timeout || f.Code == fault.AgentUnavailable {
			fact.Kind, fact.Reason = Failure, fmt.Sprintf("fault %d (%s) with task %s", f.Code, f.Code.Name(), f.Task)
		}
	case ledger.FactSilent:
		fact.Kind, fact.Reason = Failure, fmt.Sprintf("lost task %s: it was silent for too long", f.Task)
	case ledger.FactGone:
		fact.Kind, fact.Reason = Failure, fmt.Sprintf("lost task %s: its runner died", f.Task)
	case ledger.FactVoid:
		fact.Kind, fact.Reason = Void, fmt.Sprintf("wrote an entry that does not count to task %s: %s", f.Task, f.Why)
	case ledger.FactStarted:
		return fact, false
	}
	return fact, true
}

// move changes a breaker and says so; false means that it could not be stored.
func (k *keeper) move(ctx context.Context, id subject.AgentID, step func(record) record) bool {
	was, is, err := k.change(ctx, id, false, step)
	switch {
	case errors.Is(err, ErrNewer):
		return true
	case err != nil:
		k.cfg.Log.Warn("breaker is not stored", "agent_id", id, "error", err)
		return false
	}
	from, to := was.shared().State, is.shared().State
	if from == to {
		return true
	}
	attrs := []any{"agent_id", id, "from", from.String(), "to", to.String()}
	if to == gobreaker.StateOpen {
		k.cfg.Log.Warn("breaker opens", append(attrs, "failures", is.Failures, "reason", is.Reason)...)
		k.poke(id) // so that it knows
	} else {
		k.cfg.Log.Info("breaker moves", attrs...)
	}
	return true
}

// ask makes the health check of a breaker that is not closed.
func (k *keeper) ask(ctx context.Context, id subject.AgentID, h held, now time.Time) {
	switch h.shared().State {
	case gobreaker.StateClosed:
		delete(k.asked, id)
	case gobreaker.StateOpen:
		if now.Before(h.shared().Expiry) && now.Sub(h.seen) < k.cfg.Cooldown {
			return
		}
		if k.move(ctx, id, func(r record) record { return r.probe(k.cfg.Cooldown) }) {
			k.asked[id] = time.Now()
			k.poke(id)
		}
	case gobreaker.StateHalfOpen:
		at, waiting := k.asked[id]
		a, _ := k.cfg.Agents.Agent(id, now)
		switch {
		case !waiting:
			k.asked[id] = now
			k.poke(id)
		case a.Heard.After(at):
			delete(k.asked, id)
			if k.move(ctx, id, func(r record) record { return r.succeed(k.cfg.Cooldown) }) {
				k.poke(id) // its answer was told that it is paused
			}
		case now.Sub(at) >= k.cfg.Answer:
			delete(k.asked, id)
			k.move(ctx, id, func(r record) record { return r.fail(k.cfg.Cooldown, "gave no sign of life when it was asked") })
		}
	}
}

// unanswered counts pokes that no heartbeat has followed.
func (k *keeper) unanswered(ctx context.Context, now time.Time) {
	k.pokes.Lock()
	waiting := maps.Clone(k.poked)
	k.pokes.Unlock()
	for id, at := range waiting {
		a, _ := k.cfg.Agents.Agent(id, now)
		late := now.Sub(at) >= k.cfg.Answer
		if !late && !a.Heard.After(at) {
			continue
		}
		k.pokes.Lock()
		delete(k.poked, id)
		k.pokes.Unlock()
		if a.Heard.After(at) || k.get(id).shut {
			continue
		}
		k.move(ctx, id, func(r record) record { return r.fail(k.cfg.Cooldown, "did not answer when it was poked") })
	}
}

// pauseTypes stops the shared consumers of each type whose live agents are all shut out, and lets them go on with the
// first that is not. They go on by themselves should every orchestrator die.
func (k *keeper) pauseTypes(ctx context.Context, now time.Time) {
	for t, shut := range k.shutTypes(k.cfg.Agents.Agents(now)) {
		until, known := k.paused[t]
		next := time.Time{}
		switch {
		case shut && until.Sub(now) > k.cfg.Answer:
			continue
		case shut:
			next = now.Add(k.cfg.Cooldown + 2*k.cfg.Answer)
		case known && until.IsZero():
			continue
		}
		if err := k.cfg.Client.PauseType(ctx, t, next); err != nil {
			k.cfg.Log.Warn("consumers are not paused or resumed", "agent_type", t, "error", err)
			return // next time
		}
		if shut && until.IsZero() || !shut && known {
			k.cfg.Log.Info("consumers of an agent type", "agent_type", t, "paused", shut)
		}
		k.paused[t] = next
	}
}

// shutTypes tells of each agent type whether it has live agents and all of them are shut out.
func (s *Set) shutTypes(agents []registry.Agent) map[subject.AgentType]bool {
	types, live := map[subject.AgentType]bool{}, map[subject.AgentType]bool{}
	for _, a := range agents {
		t := a.AgentType
		switch {
		case !a.Live:
			types[t] = types[t] || false
		case !live[t]:
			live[t], types[t] = true, s.get(a.AgentID).shut
		default:
			types[t] = types[t] && s.get(a.AgentID).shut
		}
	}
	return types
}
