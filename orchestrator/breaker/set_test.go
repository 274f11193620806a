package breaker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/breaker"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

const patience = 20 * time.Second

// An orchestrator without all that breakers do not need.
type orchestrator struct {
	testing.TB
	*broker.Client
	*breaker.Set
	agents *registry.Registry
	leads  atomic.Bool
	stop   func() // ends it, and waits
}

func start(t testing.TB, c *broker.Client, cooldown time.Duration) *orchestrator {
	t.Helper()
	return patient(t, c, cooldown, 300*time.Millisecond)
}

// patient starts an orchestrator that waits for an answer as long as it is told.
func patient(t testing.TB, c *broker.Client, cooldown, answer time.Duration) *orchestrator {
	t.Helper()
	kv, err := c.Bucket(t.Context(), broker.AgentsBucket)
	if err != nil {
		t.Fatal(err)
	}
	o := &orchestrator{TB: t, Client: c}
	o.leads.Store(true)
	if o.agents, err = registry.Open(t.Context(), kv, time.Minute, natstest.Log(t)); err != nil {
		t.Fatal(err)
	}
	views := ledger.New(c, natstest.Log(t))
	if o.Set, err = breaker.Open(t.Context(), breaker.Config{
		Client: c, Agents: o.agents, Ledger: views, Leads: o.leads.Load, Cooldown: cooldown, Answer: answer, Log: natstest.Log(t),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{views.Run, o.agents.Run, o.Set.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	}
	o.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(o.stop)
	end := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for loading := true; loading; loading, _, _ = views.Loading() {
		if <-tick.C; time.Now().After(end) {
			t.Fatal("the views are not folded")
		}
	}
	return o
}

func (o *orchestrator) beat(id subject.AgentID) {
	o.Helper()
	o.agents.Heard(message.Heartbeat{AgentID: id, AgentType: "infra", Instance: string(id), Boot: 1, Slots: 1, State: message.StateReady}, time.Now())
}

// answering has agents answer when they are poked, until the returned function is called.
func (o *orchestrator) answering() (stop func()) {
	o.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := o.Serve(ctx, subject.AllPokes, func(_ context.Context, subj string, _ []byte) []byte {
			o.beat(subject.AgentOf(subj))
			return nil
		}); err != nil {
			o.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	o.Cleanup(stop)
	return stop
}

// litter has an agent put entries on the log of a task that is none of its own.
func (o *orchestrator) litter(id subject.AgentID, entries int) {
	o.Helper()
	for range entries {
		if err := o.Publish(subject.Event(subject.TaskID(message.NewUUID()), string(id)), []byte("{}")); err != nil {
			o.Fatal(err)
		}
	}
}

func (o *orchestrator) until(what string, ok func() bool) {
	o.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			v, _ := o.View("a")
			o.Fatalf("waited in vain until %s; the breaker is %+v", what, v)
		}
	}
}

func (o *orchestrator) state(id subject.AgentID, want string) {
	o.Helper()
	o.until(string(id)+" is "+want, func() bool {
		v, _ := o.View(id)
		return v.State == want
	})
}

func TestThreeVoidEntriesCutAnAgentOff(t *testing.T) {
	t.Parallel()
	o := start(t, natstest.Run(t), time.Minute)
	o.beat("a")
	o.litter("a", 2)
	o.until("two are counted", func() bool { v, _ := o.View("a"); return v.Failures == 2 })
	if o.Shut("a") {
		t.Error("shut out after two")
	}
	woken := o.agents.Changed()
	o.litter("a", 1)
	o.state("a", "open")
	<-woken
	v, _ := o.View("a")
	if !o.Shut("a") || o.Shut("b") || v.Failures != 3 || v.Reason == "" || v.Until == nil || time.Until(*v.Until) > time.Minute {
		t.Errorf("breaker = %+v", v)
	}
	if v, err := o.Reset(t.Context(), "a"); err != nil || v.State != "closed" || v.Failures != 0 || o.Shut("a") {
		t.Errorf("after reset: %+v, %v", v, err)
	}
}

func TestHealthCheck(t *testing.T) {
	t.Parallel()
	o := start(t, natstest.Run(t), 500*time.Millisecond)
	o.beat("a")
	o.litter("a", 3)
	o.state("a", "open")
	opened, _ := o.View("a")
	o.until("an unanswered health check has opened it again", func() bool {
		v, _ := o.View("a")
		return v.State == "open" && v.Failures == 4 && v.Since.After(*opened.Since)
	})
	o.answering()
	o.until("an answered one has closed it", func() bool { v, _ := o.View("a"); return v.State == "closed" && v.Failures == 0 })
}

// The orchestrator is ended in each of the three states, and another one goes on from there.
func TestRestartInEachState(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	o := start(t, c, time.Minute)
	o.beat("a")
	o.litter("a", 2)
	o.until("two are counted", func() bool { v, _ := o.View("a"); return v.Failures == 2 })
	o.stop()

	o = start(t, c, 500*time.Millisecond) // closed, with failures
	if v, _ := o.View("a"); v.State != "closed" || v.Failures != 2 {
		t.Fatalf("after a restart while closed: %+v", v)
	}
	o.beat("a")
	o.litter("a", 1)
	o.state("a", "open")
	o.stop()

	o = patient(t, c, time.Hour, time.Hour) // open: its minute is what was stored, not what is set now
	if !o.Shut("a") {
		t.Fatal("after a restart while open it is not shut out")
	}
	o.state("a", "half-open")
	o.stop()

	o = start(t, c, time.Hour) // half-open: the agent is asked anew
	if !o.Shut("a") {
		t.Fatal("after a restart while half-open it is not shut out")
	}
	o.beat("a")
	o.answering()
	o.state("a", "closed")
}

// What one orchestrator stores, another one knows; only the leader counts, and the next leader counts what the last one
// did not, once.
func TestLeadershipMoves(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	one, two := start(t, c, time.Minute), start(t, c, time.Minute)
	two.leads.Store(false)
	one.litter("a", 1)
	two.until("the other knows it", func() bool { v, _ := two.View("a"); return v.Failures == 1 })
	one.stop()
	two.litter("a", 1)
	two.leads.Store(true)
	two.until("it counts the second", func() bool { v, _ := two.View("a"); return v.Failures == 2 })
	two.litter("a", 1)
	two.state("a", "open")
	if v, _ := two.View("a"); v.Failures != 3 {
		t.Errorf("failures = %d, want 3: each once", v.Failures)
	}
}

func TestUnansweredPokesCount(t *testing.T) {
	t.Parallel()
	o := start(t, natstest.Run(t), time.Minute)
	poke := func(id subject.AgentID) {
		if err := o.Publish(subject.Poke(id), nil); err != nil {
			t.Fatal(err)
		}
	}
	o.beat("a")
	for n := range breaker.Failures {
		o.until("the poke is counted", func() bool {
			poke("a")
			poke("nobody")
			v, _ := o.View("a")
			return v.Failures > n
		})
	}
	o.state("a", "open")
	if v, _ := o.View("nobody"); v.Failures != 0 {
		t.Errorf("an agent that is not here failed: %+v", v)
	}
	answering := start(t, natstest.Run(t), time.Minute)
	answering.beat("a")
	answering.answering()
	answering.litter("a", 1)
	answering.until("one is counted", func() bool { v, _ := answering.View("a"); return v.Failures == 1 })
	if err := answering.Publish(subject.Poke("a"), nil); err != nil {
		t.Fatal(err)
	}
	answering.litter("a", 1) // behind the poke
	answering.until("the other one is", func() bool { v, _ := answering.View("a"); return v.Failures == 2 })
}

// When every live agent of a type is shut out its consumers hand out nothing, until one is not.
func TestTypeIsPaused(t *testing.T) {
	t.Parallel()
	o := start(t, natstest.Run(t), time.Minute)
	names, err := o.TypeConsumers(t.Context(), "infra")
	if err != nil {
		t.Fatal(err)
	}
	paused := func(want bool) func() bool {
		return func() bool {
			for _, n := range names {
				cons, err := o.Consumer(t.Context(), n)
				if err != nil {
					t.Fatal(err)
				}
				if cons.CachedInfo().Paused != want {
					return false
				}
			}
			return true
		}
	}
	o.beat("a")
	o.beat("b")
	o.litter("a", 3)
	o.state("a", "open")
	if paused(true)() {
		t.Error("paused while b may get work")
	}
	o.litter("b", 3)
	o.until("the type is paused", paused(true))
	if _, err := o.Reset(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	o.until("the type goes on", paused(false))
}

func TestNewerRecordIsRefused(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	kv, err := c.Bucket(t.Context(), broker.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	const newer = `{"v":2,"state":"ajar"}`
	if _, err := kv.Put(t.Context(), "breaker.a", []byte(newer)); err != nil {
		t.Fatal(err)
	}
	o := start(t, c, time.Minute)
	o.beat("a")
	if _, unread := o.View("a"); !unread || !o.Shut("a") {
		t.Error("it is read as if it were known")
	}
	o.litter("a", 3)
	o.litter("b", 3)
	o.state("b", "open") // counted after a
	if e, err := kv.Get(t.Context(), "breaker.a"); err != nil || string(e.Value()) != newer {
		t.Errorf("it was overwritten: %s, %v", e.Value(), err)
	}
	if v, err := o.Reset(t.Context(), "a"); err != nil || v.State != "closed" || o.Shut("a") {
		t.Errorf("Reset = %+v, %v", v, err)
	}
	if err := kv.Delete(t.Context(), "breaker.a"); err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Error(err)
	}
}
