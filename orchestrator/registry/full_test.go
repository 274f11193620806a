package registry_test

import (
	"testing"
	"time"

	"chiffon/orchestrator/registry"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
)

// When an agent was full, and what is wrong with it, is known by its own word.
func TestFullAndBroken(t *testing.T) {
	t.Parallel()
	kv, err := natstest.Run(t).Bucket(t.Context(), broker.AgentsBucket)
	if err != nil {
		t.Fatal(err)
	}
	r, err := registry.Open(t.Context(), kv, time.Minute, natstest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	hb := message.Heartbeat{AgentID: "a", AgentType: "infra", Instance: "x", Boot: 1, Slots: 1, State: message.StateReady}
	heard := func(after time.Duration, state string, held ...message.Running) registry.Agent {
		hb.State, hb.Detail, hb.Running = state, "the disk is full", held
		r.Heard(hb, start.Add(after))
		a, _ := r.Agent("a", start.Add(after))
		return a
	}
	one := message.Running{TaskID: "x", Attempt: 1, Boot: 1}
	if a := heard(0, message.StateReady); !a.Full.IsZero() || !a.Ready() {
		t.Errorf("free: full at %v", a.Full)
	}
	full := heard(time.Second, message.StateReady, one).Full
	if !full.Equal(start.Add(time.Second)) {
		t.Errorf("full at %v, want when it said so", full)
	}
	if a := heard(2*time.Second, message.StateReady); !a.Full.Equal(full) {
		t.Errorf("free again: full at %v, want %v", a.Full, full)
	}
	a := heard(3*time.Second, message.StateBroken, one)
	if v := a.View(); !a.Full.Equal(full) || a.Ready() || v.State != "broken" || v.Detail != "the disk is full" {
		t.Errorf("broken: full at %v, shown as %s %q", a.Full, v.State, v.Detail)
	}
}
