package presence_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"chiffon/agentrunner/presence"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

// An orchestrator that answers heartbeats as it is told, and shows them.
func orchestrator(t *testing.T, c *broker.Client, answer func(n int, hb message.Heartbeat) message.HeartbeatReply) <-chan message.Heartbeat {
	t.Helper()
	heard := make(chan message.Heartbeat, 100)
	n := 0
	done := make(chan error)
	go func() {
		done <- c.Serve(t.Context(), subject.AllHeartbeats, func(_ context.Context, _ string, data []byte) []byte {
			hb, err := message.DecodeHeartbeat(data)
			if err != nil {
				t.Errorf("heartbeat %s: %v", data, err)
			}
			n++
			text, err := json.Marshal(answer(n, hb))
			if err != nil {
				t.Error(err)
			}
			heard <- hb
			return text
		})
	}()
	t.Cleanup(func() { <-done })
	return heard
}

func config(t *testing.T, c *broker.Client) presence.Config {
	return presence.Config{
		Broker: c, Log: natstest.Log(t), Every: time.Hour,
		Self: message.Heartbeat{AgentID: "one", AgentType: "infra", Boot: 7, Slots: 2, Labels: map[string]string{"a": "b"}},
		Now: func(hb *message.Heartbeat) {
			hb.Running = []message.Running{{TaskID: subject.TaskID(message.NewUUID()), Attempt: 1, Boot: 6}}
			hb.Refused = []message.Refusal{{TaskID: subject.TaskID(message.NewUUID()), Code: fault.ResourceLimitExceeded, Message: "no room"}}
			hb.State, hb.Detail = message.StateBroken, "no disk"
		},
		Offers: func() ([]message.Offer, string) { return []message.Offer{{Name: "x", Attempts: 4}}, "d1" },
		Reply:  func(message.HeartbeatReply) {},
	}
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	cfg := config(t, c)
	replies := make(chan message.HeartbeatReply, 10)
	cfg.Reply = func(r message.HeartbeatReply) { replies <- r }
	heard := orchestrator(t, c, func(n int, hb message.Heartbeat) message.HeartbeatReply {
		return message.HeartbeatReply{LeaseSeconds: 1000 * float64(n), SendWork: n == 2}
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- presence.Run(ctx, cfg) }()
	// The first comes at once, the second when poked, the third soon after because work types are asked for.
	var all []message.Heartbeat
	for i := range 3 {
		all = append(all, <-heard)
		if r := <-replies; r.LeaseSeconds != 1000*float64(i+1) {
			t.Errorf("reply %d has lease %v", i+1, r.LeaseSeconds)
		}
		if i == 0 {
			if err := c.Publish(subject.Poke("one"), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
	if last := <-heard; last.State != message.StateStopped || last.Detail != "" || last.Boot != 7 || last.WorkTypes != nil || last.WorkDigest != "d1" || len(last.Running) != 1 {
		t.Errorf("its last word is %+v", last)
	}
	for i, offered := range []int{1, 0, 1} {
		if len(all[i].WorkTypes) != offered || all[i].WorkDigest != "d1" {
			t.Errorf("heartbeat %d offers %v, digest %s", i+1, all[i].WorkTypes, all[i].WorkDigest)
		}
	}
	hb := all[0]
	if hb.AgentID != "one" || hb.Boot != 7 || len(hb.Running) != 1 || len(hb.Refused) != 1 || hb.State != "broken" || hb.Detail != "no disk" ||
		!slices.Contains(hb.ProtocolVersions, "1.0") || hb.Resources.CPUs == 0 || hb.Resources.MemoryMB == 0 {
		t.Errorf("heartbeat %+v", hb)
	}
}

// Whatever the settings say, who holds work is heard three times in a lease: not heard for a lease, it would count as
// silent.
func TestThreeHeartbeatsInALease(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	heard := orchestrator(t, c, func(int, message.Heartbeat) message.HeartbeatReply {
		return message.HeartbeatReply{LeaseSeconds: 0.9}
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	began := time.Now()
	go func() { done <- presence.Run(ctx, config(t, c)) }() // it is to be heard every hour
	for i := range 4 {
		select {
		case <-heard:
		case <-time.After(10 * time.Second):
			t.Fatalf("heartbeat %d is not heard", i+1)
		}
	}
	if took := time.Since(began); took < 800*time.Millisecond {
		t.Errorf("four heartbeats in %v, want three in 0.9 s", took)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
}

func TestEndsOfAnAgent(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reply message.HeartbeatReply
		want  func(error) bool
	}{
		"another version": {
			message.HeartbeatReply{Error: new(message.FailureOf(fault.New(fault.UnsupportedWorkType, "no")))},
			func(err error) bool {
				e, ok := errors.AsType[*presence.RefusedError](err)
				return ok && e.Why.Code == 5006
			},
		},
		"a newer process": {
			message.HeartbeatReply{StopAll: true},
			func(err error) bool { _, ok := errors.AsType[*presence.ReplacedError](err); return ok },
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := natstest.Run(t)
			heard := orchestrator(t, c, func(int, message.Heartbeat) message.HeartbeatReply { return test.reply })
			if err := presence.Run(t.Context(), config(t, c)); !test.want(err) {
				t.Errorf("Run() = %v", err)
			}
			if <-heard; len(heard) != 0 {
				t.Errorf("it says %+v after its end", <-heard)
			}
		})
	}
}

// Nobody answers at first: that is no reason to end.
func TestWaitsForTheOrchestrator(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	cfg := config(t, c)
	asked := make(chan struct{}, 10)
	now := cfg.Now
	cfg.Now = func(hb *message.Heartbeat) { asked <- struct{}{}; now(hb) }
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- presence.Run(ctx, cfg) }()
	<-asked
	heard := orchestrator(t, c, func(int, message.Heartbeat) message.HeartbeatReply { return message.HeartbeatReply{} })
	if hb := <-heard; len(hb.WorkTypes) != 1 {
		t.Errorf("heartbeat %+v, want it with its work types", hb)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
}

// What has changed is told at once, without a poke and long before the next heartbeat is due.
func TestChangeIsTold(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	cfg := config(t, c)
	var digest atomic.Value
	digest.Store("d1")
	cfg.Offers = func() ([]message.Offer, string) {
		return []message.Offer{{Name: "x", Attempts: 4}}, digest.Load().(string)
	}
	changed := make(chan struct{})
	cfg.Changed = changed
	heard := orchestrator(t, c, func(int, message.Heartbeat) message.HeartbeatReply { return message.HeartbeatReply{} })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- presence.Run(ctx, cfg) }()
	<-heard
	digest.Store("d2")
	changed <- struct{}{}
	if hb := <-heard; hb.WorkDigest != "d2" || len(hb.WorkTypes) != 1 {
		t.Errorf("heartbeat %+v, want it with the new work types", hb)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run() = %v", err)
	}
}
