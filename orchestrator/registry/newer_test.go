package registry_test

import (
	"slices"
	"testing"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// What a newer orchestrator has stored is not read, and not overwritten, whatever its shape; the agent is known as it is
// heard.
func TestNewerIsNotOverwritten(t *testing.T) {
	t.Parallel()
	kv := bucket(t)
	const newer = `{"v": 2, "first_seen": {"here": true}, "heartbeat": []}`
	for key, data := range map[string]string{"a": newer, "c": "what?"} {
		if _, err := kv.Put(t.Context(), key, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	r := open(t, kv)
	run(t, r)
	for _, id := range []string{"a", "b", "c"} {
		hb := heartbeat("x", 1)
		hb.AgentID = subject.AgentID(id)
		r.Heard(hb, time.Now())
	}
	if _, known := r.Agent("a", time.Now()); !known {
		t.Error("the agent is not known")
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, id := range []string{"b", "c"} { // stored in one go with what is not
		for end := time.Now().Add(20 * time.Second); ; <-tick.C {
			if e, err := kv.Get(t.Context(), id); err == nil && e.Value()[0] == '{' {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("agent %s is not stored", id)
			}
		}
	}
	if e, err := kv.Get(t.Context(), "a"); err != nil || string(e.Value()) != newer {
		t.Errorf("a is %s, %v, want it left alone", e.Value(), err)
	}
}

// Whoever waits for a change is woken when an agent refuses something else, and when it says another state.
func TestRefusalsWake(t *testing.T) {
	t.Parallel()
	r := open(t, bucket(t))
	hb := heartbeat("x", 1)
	beat := func(name string, woken bool) {
		t.Helper()
		changed := r.Changed()
		r.Heard(hb, time.Now())
		select {
		case <-changed:
			if !woken {
				t.Errorf("%s: woken", name)
			}
		default:
			if woken {
				t.Errorf("%s: not woken", name)
			}
		}
	}
	beat("first", true)
	beat("the same", false)
	hb.Refused = []message.Refusal{{TaskID: "t", Code: fault.ResourceLimitExceeded, Message: "no room"}}
	beat("it refuses", true)
	beat("it says so again", false)
	hb.State = message.StateDraining
	beat("it drains", true)
	hb.Refused = nil
	beat("it refuses no more", true)
	a, _ := r.Agent("a", time.Now())
	if len(a.Refused) != 0 || !slices.Contains(a.Capabilities, "gpu") {
		t.Errorf("agent = %+v", a)
	}
	changed := r.Changed()
	r.Wake()
	<-changed
}
