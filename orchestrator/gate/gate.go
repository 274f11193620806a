// Package gate knows which agents are to get no new work, and why: those that people have paused or drained, and those
// whose breaker is open. It does not know what work there is.
package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/breaker"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
)

// Why an agent gets no new work.
const (
	Paused   = "paused"   // a person has said so; it ends by itself
	Draining = "draining" // a person has said so, and says when it ends
	Tripped  = "breaker"  // it has failed too often
)

// A Shut says that an agent is to get no new work. Its zero value says that it may.
type Shut struct {
	Kind  string    // Paused, Draining or Tripped; "" when it may get work
	Text  string    // for people, to follow the agent's name: "paused until 14:00: new disk"
	Until time.Time // when that ends by itself; zero if it does not
}

// Config is what a gate stands on.
type Config struct {
	Client   *broker.Client
	Agents   *registry.Registry
	Breakers *breaker.Set
	Log      *slog.Logger
}

// A Gate keeps new work from agents. Safe for concurrent use; Run follows what is stored.
type Gate struct {
	cfg  Config
	kv   jetstream.KeyValue
	said chan struct{} // something new is held

	mu    sync.RWMutex
	words map[subject.AgentID]word
}

// version is that of a stored word. Who finds a newer one gives the agent no work: a person's next word overwrites it.
const version = 1

// A word is what a person has said of an agent.
type word struct {
	Version int       `json:"v"`
	Kind    string    `json:"kind"`           // Paused or Draining
	Until   time.Time `json:"until,omitzero"` // of a pause: its end; of a drain: when what still runs is stopped
	Message string    `json:"message,omitempty"`
	By      string    `json:"by,omitempty"`
	Since   time.Time `json:"since"`

	revision uint64
	unread   bool // of a version that is not ours, or nothing that can be read
}

// holds reports whether a word still stands.
func (w word) holds(now time.Time) bool {
	return w.unread || w.Kind == Draining || w.Kind == Paused && now.Before(w.Until)
}

// keys in the bucket: one per agent that a person has said something of.
const prefix = "word."

func agentOf(key string) subject.AgentID { return subject.AgentID(strings.TrimPrefix(key, prefix)) }

// Open reads what people have said.
func Open(ctx context.Context, cfg Config) (*Gate, error) {
	kv, err := cfg.Client.Bucket(ctx, broker.StateBucket)
	if err != nil {
		return nil, err
	}
	g := &Gate{cfg: cfg, kv: kv, said: make(chan struct{}, 1), words: map[subject.AgentID]word{}}
	for v, err := range broker.Values(ctx, kv, prefix+"*") {
		if err != nil {
			return nil, fmt.Errorf("paused agents: %w", err)
		}
		g.take(agentOf(v.Key), v.Data, v.Revision)
	}
	return g, nil
}

// take holds what is stored; no data is a word taken back.
func (g *Gate) take(id subject.AgentID, data []byte, revision uint64) {
	w := word{}
	if data != nil {
		if err := json.Unmarshal(data, &w); err != nil || w.Version != version || w.Kind != Paused && w.Kind != Draining {
			g.cfg.Log.Error("pause of an agent is not read: it gets no work until agent resume", "agent_id", id, "version", w.Version, "error", err)
			w.unread = true
		}
	}
	w.revision = revision
	g.mu.Lock()
	if revision < g.words[id].revision {
		g.mu.Unlock()
		return
	}
	g.words[id] = w
	g.mu.Unlock()
	g.cfg.Agents.Wake()
}

func (g *Gate) word(id subject.AgentID) word {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.words[id]
}

// Shut says whether an agent is to get no new work, and why. A person's word goes before the breaker's. It costs
// next to nothing.
func (g *Gate) Shut(id subject.AgentID, now time.Time) Shut {
	if w := g.word(id); w.holds(now) {
		return w.shut(string(id), now)
	}
	if !g.cfg.Breakers.Shut(id) {
		return Shut{}
	}
	b, newer := g.cfg.Breakers.View(id)
	s := Shut{Kind: Tripped}
	switch {
	case newer:
		s.Text = "shut out: its breaker was stored by a newer version of the orchestrator; upgrade this one, or: orchestrator breaker reset " + string(id)
	case b.Until != nil && now.Before(*b.Until):
		s.Until = *b.Until
		s.Text = "shut out by its breaker until " + view.Clock(s.Until, now)
	default:
		s.Text = "shut out by its breaker, asked for a sign of life"
	}
	if b.Reason != "" {
		s.Text += fmt.Sprintf(": failed %d times in a row, at last: %s", b.Failures, b.Reason)
	}
	return s
}

func (w word) shut(id string, now time.Time) Shut {
	s := Shut{Kind: w.Kind}
	switch {
	case w.unread:
		return Shut{Kind: Paused, Text: "paused: what was said of it was stored by a newer version of the orchestrator; upgrade this one, or: orchestrator agent resume " + id}
	case w.Kind == Paused:
		s.Until, s.Text = w.Until, "paused until "+view.Clock(w.Until, now)
	case now.Before(w.Until):
		s.Text = "draining, what runs at " + view.Clock(w.Until, now) + " is stopped"
	default:
		s.Text = "drained since " + view.Clock(w.Since, now)
	}
	if w.Message != "" {
		s.Text += ": " + w.Message
	}
	return s
}
