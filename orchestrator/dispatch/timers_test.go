package dispatch

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// 5.4: timers start anew after a gap in the reconciler's own ticks, and while the broker is out of reach.
func TestRuleReconcileTimersStartAnew(t *testing.T) {
	t.Parallel()
	client := natstest.Run(t)
	d := New(Config{}, client, ledger.New(client, natstest.Log(t)), nil, natstest.Log(t))
	r := &reconciler{d: d, latest: &world{}}
	began := time.Now()
	d.restart(began)
	step := began.Add(time.Hour)
	r.wake(step.Add(-stopped), step)
	if !d.started().Equal(began) || r.latest == nil {
		t.Errorf("after a pause of %v timers start at %v, want %v as before", stopped, d.started(), began)
	}
	r.wake(step.Add(-stopped-1), step)
	if !d.started().Equal(step) || r.latest != nil {
		t.Errorf("after a longer pause timers start at %v, want %v, and nothing believed", d.started(), step)
	}
	client.Close()
	r.wake(step, step.Add(1))
	if !d.started().Equal(step.Add(1)) {
		t.Errorf("cut off, timers start at %v, want %v", d.started(), step.Add(1))
	}
}

// 5.4.1: a request that was delivered, and of which nothing was heard since although somebody is free, is put again
// after two leases.
func TestRuleReconcileQueuedDeliveredAndSilent(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	stop := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(brisk.Lease / 4)
		defer tick.Stop()
		for {
			s.agents.Heard(message.Heartbeat{
				AgentID: "a", AgentType: "infra", Instance: "a", Boot: 1, Slots: 1, State: message.StateReady,
				WorkTypes: []message.Offer{{Name: "survey", Attempts: 2}},
			}, time.Now())
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	defer beats.Wait()
	defer close(stop)
	id := s.submit()
	cons, err := s.Consumer(t.Context(), subject.TypeConsumer("infra", subject.Normal))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cons.Next(jetstream.FetchMaxWait(patience)); err != nil { // and not a word more
		t.Fatal(err)
	}
	log := s.until(id, "queued again", func(st tasklog.State) bool { return st.RequestSeq > 1 })
	first, again := log[0], log[len(log)-1]
	if again.Kind != tasklog.Queued || len(log) != 2 {
		t.Errorf("%d entries, the last %s, want queued behind submitted", len(log), again.Kind)
	}
	if waited := again.Time.Sub(first.Time); waited < 2*brisk.Lease-50*time.Millisecond {
		t.Errorf("put again after %v, want two leases", waited)
	}
}

// 5.3: when the next attempt is due stands in the log, so another process than the one that saw the failure keeps it.
func TestRuleRetrySurvivesARestart(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	id := s.submit()
	s.started(id, "a", 1, 2)
	due := time.Now().Add(900 * time.Millisecond)
	s.fails(id, due)
	s.stop()
	next := brisk
	next.Name = "two"
	two := join(t, s.Client, next)
	log := two.until(id, "queued again", func(st tasklog.State) bool { return st.Phase == tasklog.PhaseQueued && st.Attempt == 1 })
	if again := log[len(log)-1]; again.Time.Before(due) || len(log) != 4 {
		t.Errorf("%d entries, queued again %v early", len(log), due.Sub(again.Time))
	}
}
