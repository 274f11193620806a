package registry_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

const lease = 30 * time.Second

func open(t *testing.T, kv jetstream.KeyValue) *registry.Registry {
	t.Helper()
	r, err := registry.Open(t.Context(), kv, lease, natstest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func bucket(t *testing.T) jetstream.KeyValue {
	t.Helper()
	kv, err := natstest.Run(t).Bucket(t.Context(), broker.AgentsBucket)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

// run keeps a registry stored until the test ends.
func run(t *testing.T, r *registry.Registry) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
}

// heartbeat is that of an agent of type infra, which offers "survey".
func heartbeat(instance string, boot uint64) message.Heartbeat {
	return message.Heartbeat{
		AgentID: "a", AgentType: "infra", Instance: instance, Boot: boot, Slots: 2, Host: "attic", WorkDigest: "d1",
		Labels: map[string]string{"site": "attic"}, Capabilities: []string{"gpu"}, State: message.StateReady,
		WorkTypes: []message.Offer{{Name: "survey", Attempts: 3, Parameters: json.RawMessage(
			`{"type": "object", "properties": {"depth": {"type": "integer"}}}`)}},
	}
}

// brief is a heartbeat without its work types.
func brief(instance string, boot uint64) message.Heartbeat {
	hb := heartbeat(instance, boot)
	hb.WorkTypes = nil
	return hb
}

func TestHeard(t *testing.T) {
	t.Parallel()
	type beat struct {
		hb    message.Heartbeat
		after time.Duration // since the first
		want  registry.Verdict
	}
	stopped := brief("one", 1)
	stopped.State = message.StateStopped
	other := brief("one", 1)
	other.WorkDigest = "d2"
	twin := &fault.Fault{Code: fault.AuthenticationFailed}
	kv := bucket(t)
	for name, beats := range map[string][]beat{
		"it comes and stays": {{heartbeat("one", 1), 0, registry.Verdict{Restarted: true}}, {brief("one", 1), 5 * time.Second, registry.Verdict{}}},
		"it does not say what it offers": {{brief("one", 1), 0, registry.Verdict{Restarted: true, SendWork: true}},
			{brief("one", 1), time.Second, registry.Verdict{}}},
		"it offers something else": {{heartbeat("one", 1), 0, registry.Verdict{Restarted: true}}, {other, time.Second, registry.Verdict{SendWork: true}}},
		"it starts anew":           {{heartbeat("one", 1), 0, registry.Verdict{Restarted: true}}, {heartbeat("one", 2), time.Second, registry.Verdict{Restarted: true}}},
		"its earlier life goes on": {{heartbeat("one", 2), 0, registry.Verdict{Restarted: true}}, {heartbeat("one", 1), time.Second, registry.Verdict{StopAll: true}}},
		"a twin":                   {{heartbeat("one", 1), 0, registry.Verdict{Restarted: true}}, {heartbeat("two", 9), 14 * time.Second, registry.Verdict{Refused: twin}}},
		"another, when it has stopped": {{heartbeat("one", 1), 0, registry.Verdict{Restarted: true}}, {stopped, time.Second, registry.Verdict{}},
			{heartbeat("two", 9), 2 * time.Second, registry.Verdict{Restarted: true}}},
		"another, when it is gone": {{heartbeat("one", 5), 0, registry.Verdict{Restarted: true}}, {heartbeat("two", 1), 16 * time.Second, registry.Verdict{Restarted: true}}},
	} {
		r := open(t, kv)
		first := time.Now()
		for i, b := range beats {
			got := r.Heard(b.hb, first.Add(b.after))
			same := got.SendWork == b.want.SendWork && got.StopAll == b.want.StopAll && got.Restarted == b.want.Restarted &&
				(got.Refused == nil) == (b.want.Refused == nil) && (got.Refused == nil || got.Refused.Code == b.want.Refused.Code)
			if name == "it does not say what it offers" && i == 1 {
				same = !got.Restarted && !got.StopAll && got.Refused == nil // it may be asked again, or not
			}
			if !same {
				t.Errorf("%s: heartbeat %d brings %+v, want %+v", name, i+1, got, b.want)
			}
		}
	}
}

// The last word of a runner holds at once, until it is started again: not what it has said before and comes after. What
// it holds by the log is no matter of this.
func TestStopped(t *testing.T) {
	t.Parallel()
	r := open(t, bucket(t))
	now := time.Now()
	held := message.Running{TaskID: "8d4cbb3a-3f55-4f1b-9a9e-2a3a4a5a6a7a", Attempt: 1, Boot: 1}
	last := brief("one", 1)
	last.State = message.StateStopped
	late := brief("one", 1)
	late.State, late.Running = message.StateDraining, []message.Running{held}
	for i, beat := range []struct {
		hb    message.Heartbeat
		live  bool
		state string
		busy  int
	}{
		{heartbeat("one", 1), true, "ready", 0}, {late, true, "draining", 1}, {last, false, "stopped", 0}, {late, false, "stopped", 0}, {heartbeat("one", 2), true, "ready", 0},
	} {
		changed := r.Changed()
		r.Heard(beat.hb, now)
		a, _ := r.Agent("a", now)
		v := a.View()
		if a.Live != beat.live || v.State != beat.state || len(v.Running) != beat.busy || (beat.state == "stopped") != (v.Detail == "it ended in order at "+view.Clock(now, now)) {
			t.Errorf("after heartbeat %d: live %v, %s %q, %v", i+1, a.Live, v.State, v.Detail, v.Running)
		}
		if i == 2 {
			select {
			case <-changed:
			default:
				t.Error("it has stopped, and nobody is told")
			}
		}
	}
	if r.Listed(held.TaskID, 1, 1).IsZero() {
		t.Error("what it has listed is forgotten")
	}
}

func TestAgent(t *testing.T) {
	t.Parallel()
	r := open(t, bucket(t))
	now := time.Now()
	held := message.Running{TaskID: "8d4cbb3a-3f55-4f1b-9a9e-2a3a4a5a6a7a", Attempt: 1, Boot: 1}
	hb := heartbeat("one", 1)
	hb.Running = []message.Running{held}
	changed := r.Changed()
	r.Heard(hb, now)
	select {
	case <-changed:
	default:
		t.Error("an agent comes, and nobody is told")
	}
	changed = r.Changed()
	again := brief("one", 1)
	again.Running = hb.Running
	r.Heard(again, now)
	select {
	case <-changed:
		t.Error("nothing has changed, and everybody is told")
	default:
	}
	a, ok := r.Agent("a", now.Add(lease-1))
	if !ok || !a.Live || a.Free() != 1 || !a.Offers("survey") || a.Offers("dance") || a.Attempts("survey") != 3 ||
		!a.Lists(held.TaskID, 1, 1) || a.Lists(held.TaskID, 2, 1) || !r.Listed(held.TaskID, 1, 1).Equal(now) {
		t.Errorf("Agent = %+v, %v", a, ok)
	}
	if !a.Fits(map[string]string{"site": "attic"}, []string{"gpu"}) || a.Fits(map[string]string{"site": "cellar"}, nil) || a.Fits(nil, []string{"tpu"}) {
		t.Error("Fits does not go by labels and capabilities")
	}
	if flt := a.Check("survey", json.RawMessage(`{"depth": "x"}`)); flt == nil || flt.Field() != "payload.parameters.depth" {
		t.Errorf("Check = %v, want 5003 about depth", flt)
	}
	if a.Check("survey", json.RawMessage(`{"depth": 1}`)) != nil || a.Check("dance", json.RawMessage(`{}`)) != nil {
		t.Error("Check refuses what is right, or what it does not know")
	}
	if v := a.View(); v.State != "ready" || v.LastSeen == nil || len(v.Running) != 1 || v.WorkTypes[0].Attempts != 3 {
		t.Errorf("View = %+v", v)
	}
	late, _ := r.Agent("a", now.Add(lease))
	if v := late.View(); late.Live || v.State != "silent" {
		t.Errorf("after a lease it is %s, want silent", v.State)
	}
	r.Forget(func(subject.TaskID) bool { return false })
	if r.Listed(held.TaskID, 1, 1).IsZero() {
		t.Error("what goes on is forgotten")
	}
	r.Forget(func(id subject.TaskID) bool { return id == held.TaskID })
	if !r.Listed(held.TaskID, 1, 1).IsZero() {
		t.Error("what is over is remembered")
	}
}

// What an agent is and offers is known after a restart, and in every orchestrator; that it lives is not.
func TestStored(t *testing.T) {
	t.Parallel()
	kv := bucket(t)
	first, other := open(t, kv), open(t, kv)
	run(t, first)
	run(t, other)
	// The watch of the other begins at some moment: it is told again until it knows.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	known := other.Changed()
	for boot, end := uint64(1), time.Now().Add(20*time.Second); ; boot++ {
		first.Heard(heartbeat("one", boot), time.Now())
		select {
		case <-known:
		case <-tick.C:
			if time.Now().After(end) {
				t.Fatal("the other orchestrator does not hear of it")
			}
			continue
		}
		break
	}
	for name, r := range map[string]*registry.Registry{"another": other, "after a restart": open(t, kv)} {
		a, ok := r.Agent("a", time.Now())
		if !ok || a.Live || !a.Heard.IsZero() || !a.Offers("survey") || len(a.Running) != 0 || a.FirstSeen.IsZero() {
			t.Errorf("%s: Agent = %+v, %v, want it as it was stored, and silent", name, a, ok)
		}
		if a.Check("survey", json.RawMessage(`{"depth": "x"}`)) == nil {
			t.Errorf("%s: the schema is forgotten", name)
		}
		if v := r.Heard(brief("one", a.Boot), time.Now()); v.SendWork || v.Refused != nil || v.StopAll {
			t.Errorf("%s: a heartbeat of the same agent brings %+v", name, v)
		}
	}
	if _, err := kv.PutString(t.Context(), "b", "hello"); err != nil {
		t.Fatal(err)
	}
	if _, ok := open(t, kv).Agent("b", time.Now()); ok {
		t.Error("an agent is made of what cannot be read")
	}
}
