package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/orchestrator/breaker"
	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/gateway"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A site is an orchestrator as agents see it.
type site struct {
	testing.TB
	*broker.Client
	d    *dispatch.Dispatcher
	gate *gate.Gate
}

func newSite(t testing.TB) *site {
	t.Helper()
	c := natstest.Run(t)
	kv, err := c.Bucket(t.Context(), broker.AgentsBucket)
	if err != nil {
		t.Fatal(err)
	}
	agents, err := registry.Open(t.Context(), kv, time.Minute, natstest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	views := ledger.New(c, natstest.Log(t))
	d := dispatch.New(dispatch.Config{Name: "one", Lease: time.Minute}, c, views, agents, natstest.Log(t))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	breakers, err := breaker.Open(t.Context(), breaker.Config{Client: c, Agents: agents, Ledger: views, Leads: d.Leading, Log: natstest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.Open(t.Context(), gate.Config{Client: c, Agents: agents, Breakers: breakers, Log: natstest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{views.Run, gateway.New(c, agents, d, g, natstest.Log(t)).Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("Run = %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return &site{TB: t, Client: c, d: d, gate: g}
}

// ask sends a request until somebody listens.
func (s *site) ask(subj, data string) []byte {
	s.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		answer, err := s.Request(s.Context(), subj, []byte(data))
		if err == nil {
			return answer
		}
		if !broker.NobodyAnswers(err) || time.Now().After(end) {
			s.Fatal(err)
		}
	}
}

func (s *site) beat(subj, data string) message.HeartbeatReply {
	s.Helper()
	r, err := message.DecodeHeartbeatReply(s.ask(subj, data))
	if err != nil {
		s.Fatal(err)
	}
	return r
}

const beat = `{"agent_id":"a","agent_type":"infra","protocol_versions":["0.9","1.0"],"boot":3,"slots":1,"instance":"x"}`

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, c := range map[string]struct {
		subj, data string
		code       fault.Code
	}{
		"no JSON":              {subject.Heartbeat("a"), "hello", fault.InvalidMessage},
		"a field is missing":   {subject.Heartbeat("a"), `{"agent_id":"a"}`, fault.InvalidMessage},
		"another's subject":    {subject.Heartbeat("b"), beat, fault.AuthenticationFailed},
		"no version in common": {subject.Heartbeat("a"), strings.Replace(beat, "1.0", "2.0", 1), fault.UnsupportedWorkType},
	} {
		if r := s.beat(c.subj, c.data); r.Error == nil || r.Error.Code != c.code {
			t.Errorf("%s: reply %+v, want error %d", name, r, c.code)
		}
	}
	r := s.beat(subject.Heartbeat("a"), beat)
	if r.Error != nil || r.ProtocolVersion != "1.0" || r.LeaseSeconds != 60 || !r.SendWork || len(r.Consumers) != 4 {
		t.Errorf("reply %+v, want version, lease, consumers and the wish for work types", r)
	}
	if r := s.beat(subject.Heartbeat("a"), strings.Replace(beat, `"x"`, `"y"`, 1)); r.Error == nil || r.Error.Code != fault.AuthenticationFailed {
		t.Errorf("a twin is told %+v, want 5004", r)
	}
	if r := s.beat(subject.Heartbeat("a"), strings.Replace(beat, `"boot":3`, `"boot":2`, 1)); !r.StopAll {
		t.Errorf("an earlier life is told %+v, want stop all", r)
	}
}

func TestHeartbeatTellsWhatToStop(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.submit(`{}`)
	m := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom = message.Custom{AgentID: "a", Chiffon: &message.Extension{Attempts: 1}}
	d, err := tasklog.Write(tasklog.Started, id, subject.Event(id, "a"), m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), d.At(1, 1, 3)); err != nil {
		t.Fatal(err)
	}
	listing := strings.Replace(beat, `"slots"`, `"running":[{"task_id":"`+string(id)+`","attempt":1,"boot":3}],"slots"`, 1)
	if r := s.beat(subject.Heartbeat("a"), listing); len(r.Cancel) != 0 {
		t.Errorf("reply cancels %v", r.Cancel)
	}
	if _, err := s.d.Cancel(t.Context(), id, message.Cancel{By: "admin"}); err != nil {
		t.Fatal(err)
	}
	if r := s.beat(subject.Heartbeat("a"), listing); len(r.Cancel) != 1 || r.Cancel[0] != id {
		t.Errorf("reply cancels %v, want %s", r.Cancel, id)
	}
}

func (s *site) submit(parameters string) subject.TaskID {
	s.Helper()
	id, _, err := s.d.Submit(s.Context(), dispatch.Order{By: "admin", Request: message.New(subject.Orchestrator, "infra",
		message.NewUUID(), message.NewUUID(), message.WorkRequest{WorkType: "survey", Parameters: json.RawMessage(parameters)})})
	if err != nil {
		s.Fatal(err)
	}
	return id
}

// A log is answered whatever its requests hold: what it adds up to does not depend on their parameters.
func TestGet(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, parameters := range map[string]string{"small": `{"a":1}`, "large": `{"a":"` + strings.Repeat("x", 4_000_000) + `"}`} {
		id := s.submit(parameters)
		var r broker.LogReply
		if err := json.Unmarshal(s.ask(subject.Call("a", "get"), `{"task_id":"`+string(id)+`"}`), &r); err != nil || r.Error != nil || len(r.Messages) != 1 {
			t.Fatalf("%s: get = %+v, %v", name, r, err)
		}
		if st := tasklog.Fold([]tasklog.Entry{r.Messages[0].Entry()}); st.Phase != tasklog.PhaseQueued {
			t.Errorf("%s: the log adds up to %+v, want queued", name, st)
		}
	}
	for question, code := range map[string]fault.Code{`hello`: 5003, `{"task_id":"x"}`: 5003} {
		var r broker.LogReply
		if err := json.Unmarshal(s.ask(subject.Call("a", "get"), question), &r); err != nil || r.Error == nil || r.Error.Code != code {
			t.Errorf("get %s = %+v, %v, want error %d", question, r, err, code)
		}
	}
	var r broker.LogReply
	if err := json.Unmarshal(s.ask(subject.Call("a", "dance"), `{}`), &r); err != nil || r.Error == nil {
		t.Errorf("an unknown verb = %+v, %v", r, err)
	}
}

// The reply tells an agent what people and its breaker say, and no longer once that is over.
func TestReplyTellsOfPausesAndDrains(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	if r := s.beat(subject.Heartbeat("a"), beat); r.PausedUntil != nil || r.Drain || r.Notice != "" {
		t.Errorf("nobody has said anything: %+v", r)
	}
	if err := s.gate.Pause(t.Context(), "a", until, "new disk", "admin"); err != nil {
		t.Fatal(err)
	}
	if r := s.beat(subject.Heartbeat("a"), beat); r.PausedUntil == nil || !r.PausedUntil.Equal(until) || r.Drain || !strings.Contains(r.Notice, "new disk") {
		t.Errorf("paused: %+v", r)
	}
	if r := s.beat(subject.Heartbeat("b"), strings.Replace(beat, `"a"`, `"b"`, 1)); r.PausedUntil != nil {
		t.Errorf("another agent: %+v", r)
	}
	if err := s.gate.Drain(t.Context(), "a", until, "", "admin"); err != nil {
		t.Fatal(err)
	}
	if r := s.beat(subject.Heartbeat("a"), beat); r.PausedUntil != nil || !r.Drain || r.DrainUntil == nil || !r.DrainUntil.Equal(until) {
		t.Errorf("drained: %+v", r)
	}
	if err := s.gate.Resume(t.Context(), "a", "admin"); err != nil {
		t.Fatal(err)
	}
	if r := s.beat(subject.Heartbeat("a"), beat); r.PausedUntil != nil || r.Drain || r.DrainUntil != nil || r.Notice != "" {
		t.Errorf("resumed: %+v", r)
	}
}
