package breaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
)

// Config is what breakers stand on. The zero value of a time means its default.
type Config struct {
	Client *broker.Client
	Agents *registry.Registry
	Ledger *ledger.Ledger

	// Leads tells whether this orchestrator counts and asks: one of them does.
	Leads func() bool

	// Cooldown is how long a breaker is open. Default Cooldown.
	Cooldown time.Duration

	// Answer is how long an agent that was poked has for its heartbeat. Default 10 s.
	Answer time.Duration

	Log *slog.Logger
}

// A Set is the breakers of all agents. Safe for concurrent use; Run counts.
type Set struct {
	cfg Config
	kv  jetstream.KeyValue

	writing sync.Mutex // one change at a time; taken before mu
	mu      sync.RWMutex
	all     map[subject.AgentID]held
	changed func() // tells that new work may go elsewhere now
}

// held is a record as this process knows it.
type held struct {
	record
	revision uint64
	newer    bool      // its version is not ours
	shut     bool      // open or half-open, read out of the record
	seen     time.Time // when this process saw it come into its state, monotonic
}

const prefix = "breaker."

func agentOf(key string) subject.AgentID { return subject.AgentID(strings.TrimPrefix(key, prefix)) }

// ErrNewer comes back when a stored record is of a newer version than this program: only a reset overwrites that.
var ErrNewer = errors.New("its breaker was stored by a newer version of the orchestrator")

// Open reads the stored breakers.
func Open(ctx context.Context, cfg Config) (*Set, error) {
	if cfg.Cooldown <= 0 {
		cfg.Cooldown = Cooldown
	}
	if cfg.Answer <= 0 {
		cfg.Answer = 10 * time.Second
	}
	kv, err := cfg.Client.Bucket(ctx, broker.StateBucket)
	if err != nil {
		return nil, err
	}
	s := &Set{cfg: cfg, kv: kv, all: map[subject.AgentID]held{}, changed: cfg.Agents.Wake}
	for v, err := range broker.Values(ctx, kv, prefix+"*") {
		if err != nil {
			return nil, fmt.Errorf("breakers: %w", err)
		}
		s.take(agentOf(v.Key), v.Data, v.Revision)
	}
	return s, nil
}

// read takes in what is stored of one agent.
func (s *Set) read(ctx context.Context, id subject.AgentID) error {
	e, err := s.kv.Get(ctx, prefix+string(id))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		s.take(id, nil, 0)
		return nil
	}
	if err != nil {
		return fmt.Errorf("breaker of %s: %w", id, err)
	}
	s.take(id, e.Value(), e.Revision())
	return nil
}

// take holds what is stored, unless something later is held already.
func (s *Set) take(id subject.AgentID, data []byte, revision uint64) {
	var h held
	if data != nil {
		if err := json.Unmarshal(data, &h.record); err != nil || h.Version != version {
			s.cfg.Log.Warn("breaker is not read", "agent_id", id, "version", h.Version, "error", err)
			h.record, h.newer = record{}, err == nil
		}
	}
	h.revision = revision
	s.keep(id, h)
}

func (s *Set) keep(id subject.AgentID, h held) {
	s.mu.Lock()
	was, known := s.all[id]
	if known && h.revision != 0 && h.revision < was.revision {
		s.mu.Unlock()
		return
	}
	h.seen = time.Now()
	if known && was.shared().State == h.shared().State && was.Since.Equal(h.Since) {
		h.seen = was.seen
	}
	h.Seq, h.shut = max(h.Seq, was.Seq), h.open()
	s.all[id] = h
	s.mu.Unlock()
	if was.shut != h.shut || was.newer != h.newer {
		s.changed()
	}
}

func (s *Set) get(id subject.AgentID) held {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[id]
}

// View is one agent's breaker as people see it. newer tells that it is of a version that this program does not read.
func (s *Set) View(id subject.AgentID) (v view.Breaker, newer bool) {
	h := s.get(id)
	return h.view(id), h.newer
}

// Shut reports whether an agent is to get no new work for its failures. It costs next to nothing.
func (s *Set) Shut(id subject.AgentID) bool {
	h := s.get(id)
	return h.shut || h.newer
}

// known lists the agents that have a breaker's record.
func (s *Set) known() map[subject.AgentID]held {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.all)
}

// change makes a step and stores it, over what it was made on: when somebody else was faster it is made again.
func (s *Set) change(ctx context.Context, id subject.AgentID, force bool, step func(record) record) (was, is record, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for {
		h := s.get(id)
		if h.newer && !force {
			return h.record, h.record, ErrNewer
		}
		next := step(h.record)
		if next.same(h.record) && !h.newer {
			s.place(id, next.Seq)
			return h.record, next, nil
		}
		next.Version = version
		revision, err := s.store(ctx, id, next, h.revision)
		switch {
		case err == nil:
			s.keep(id, held{record: next, revision: revision})
			return h.record, next, nil
		case errors.Is(err, jetstream.ErrKeyExists), errors.Is(err, jetstream.ErrKeyRevisionMismatch):
			if err := s.read(ctx, id); err != nil {
				return h.record, h.record, err
			}
		default:
			return h.record, h.record, fmt.Errorf("breaker of %s: %w", id, err)
		}
	}
}

// place remembers up to where the log was counted, without storing it.
func (s *Set) place(id subject.AgentID, seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.all[id]
	h.Seq = max(h.Seq, seq)
	s.all[id] = h
}

func (s *Set) store(ctx context.Context, id subject.AgentID, r record, over uint64) (uint64, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	if over == 0 {
		return s.kv.Create(ctx, prefix+string(id), data)
	}
	return s.kv.Update(ctx, prefix+string(id), data, over)
}

// storeTime bounds one write.
const storeTime = 5 * time.Second

// Reset closes an agent's breaker, by a person's word: whatever is stored of it.
func (s *Set) Reset(ctx context.Context, id subject.AgentID) (view.Breaker, error) {
	_, is, err := s.change(ctx, id, true, func(r record) record { return r.reset(time.Now()) })
	if err != nil {
		return view.Breaker{}, err
	}
	s.poke(id) // so that it knows
	return is.view(id), nil
}

// poke has an agent ask what is wanted of it.
func (s *Set) poke(id subject.AgentID) {
	if err := s.cfg.Client.Publish(subject.Poke(id), nil); err != nil {
		s.cfg.Log.Warn("agent is not poked", "agent_id", id, "error", err)
	}
}
