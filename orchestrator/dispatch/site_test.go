package dispatch

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// brisk makes every wait short.
var brisk = Config{
	Lease: 400 * time.Millisecond, Grace: 100 * time.Millisecond, Heartbeat: 100 * time.Millisecond,
	Sweep: 100 * time.Millisecond, LeaderQuiet: 500 * time.Millisecond, Name: "one",
}

// A site is an orchestrator without its doors, on a broker. Its agents are played by the test.
type site struct {
	testing.TB
	*broker.Client
	ledger *ledger.Ledger
	agents *registry.Registry
	d      *Dispatcher
	stop   func() // ends it, and waits
}

func newSite(t testing.TB, cfg Config) *site {
	t.Helper()
	return join(t, natstest.Run(t), cfg)
}

// join is one more orchestrator on a broker.
func join(t testing.TB, c *broker.Client, cfg Config) *site {
	t.Helper()
	kv, err := c.Bucket(t.Context(), broker.AgentsBucket)
	if err != nil {
		t.Fatal(err)
	}
	lease := cfg.withDefaults().Lease
	agents, err := registry.Open(t.Context(), kv, lease, natstest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{TB: t, Client: c, agents: agents, ledger: ledger.New(c, natstest.Log(t))}
	s.d = New(cfg, c, s.ledger, agents, natstest.Log(t))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{s.ledger.Run, s.d.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("orchestrator %s ended: %v", cfg.Name, err)
			}
		})
	}
	s.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(s.stop)
	return s
}

// beat has an agent of type infra heard that does "survey" in one slot.
func (s *site) beat(id subject.AgentID, boot uint64, more ...func(*message.Heartbeat)) {
	s.Helper()
	hb := message.Heartbeat{
		AgentID: id, AgentType: "infra", Instance: string(id), Boot: boot, Slots: 1, State: message.StateReady,
		WorkTypes: []message.Offer{{Name: "survey", Attempts: 2, Parameters: json.RawMessage(
			`{"type": "object", "properties": {"depth": {"type": "integer"}}, "additionalProperties": false}`)}},
	}
	for _, m := range more {
		m(&hb)
	}
	if v := s.agents.Heard(hb, time.Now()); v.Refused != nil || v.StopAll {
		s.Fatalf("heartbeat of %s is refused: %+v", id, v)
	}
}

func labelled(k, v string) func(*message.Heartbeat) {
	return func(hb *message.Heartbeat) { hb.Labels = map[string]string{k: v} }
}

func order(more ...func(*Order)) Order {
	m := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(), message.WorkRequest{
		WorkType: "survey", Parameters: json.RawMessage(`{"depth": 1}`),
	})
	m.Custom.Chiffon = &message.Extension{}
	o := Order{Request: m, By: "admin"}
	for _, f := range more {
		f(&o)
	}
	return o
}

func (s *site) submit(more ...func(*Order)) subject.TaskID {
	s.Helper()
	id, created, err := s.d.Submit(s.Context(), order(more...))
	if err != nil || !created {
		s.Fatalf("Submit = %s, %v, %v, want a new task", id, created, err)
	}
	return id
}

const patience = 20 * time.Second

// until waits for a task's log to add up to what ok wants, and returns it.
func (s *site) until(id subject.TaskID, what string, ok func(tasklog.State) bool) []tasklog.Entry {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	var log []tasklog.Entry
	for m, err := range s.Tail(ctx, subject.TasksStream, 1) {
		if err != nil {
			s.Fatal(err)
		}
		if e := m.Entry(); e.Subject.Task == id {
			log = append(log, e)
			if ok(tasklog.Fold(log)) {
				return log
			}
		}
	}
	s.Fatalf("task %s is %+v, want %s", id, tasklog.Fold(log), what)
	return nil
}

func (s *site) phase(id subject.TaskID, p tasklog.Phase) []tasklog.Entry {
	s.Helper()
	return s.until(id, p.String(), func(st tasklog.State) bool { return st.Phase == p })
}

// shows waits until the views have a task at a phase.
func (s *site) shows(id subject.TaskID, p tasklog.Phase) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	if err := s.ledger.Wait(ctx, s.state(id).TailSeq); err != nil {
		s.Fatal(err)
	}
	if t, _ := s.ledger.Get(id); t.State.Phase != p {
		s.Fatalf("the views have task %s %s, want %s", id, t.State.Phase, p)
	}
}

// ended waits for the end of a task and returns it.
func (s *site) ended(id subject.TaskID, kind tasklog.Kind) tasklog.Entry {
	s.Helper()
	log := s.phase(id, tasklog.PhaseEnded)
	e := log[len(log)-1]
	if e.Kind != kind {
		s.Fatalf("task %s ends with %s %+v, want %s", id, e.Kind, e.Message.Failure, kind)
	}
	return e
}

func (s *site) state(id subject.TaskID) tasklog.State {
	s.Helper()
	log, err := s.Task(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	return tasklog.Fold(log)
}

// started has an agent begin the next attempt of a task.
func (s *site) started(id subject.TaskID, agent subject.AgentID, boot uint64, allowed int) {
	s.Helper()
	m := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(),
		message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom = message.Custom{AgentID: agent, Chiffon: &message.Extension{Attempts: allowed}}
	s.says(tasklog.Write(tasklog.Started, id, subject.Event(id, string(agent)), m))(1, boot)
}

// fails has the holder say that its attempt failed.
func (s *site) fails(id subject.TaskID, again time.Time) {
	s.Helper()
	st := s.state(id)
	m := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(),
		message.Failure{Code: fault.ResourceLimitExceeded, Message: "no memory"})
	m.Custom = message.Custom{AgentID: subject.AgentID(st.Holder), Chiffon: &message.Extension{RetryAt: &again}}
	s.says(tasklog.Write(tasklog.AttemptFailed, id, subject.Event(id, st.Holder), m))(0, st.Boot)
}

// says appends what an agent wrote to what the log holds; next is by how much the attempt is another.
func (s *site) says(d tasklog.Draft, err error) func(next int, boot uint64) {
	s.Helper()
	return func(next int, boot uint64) {
		s.Helper()
		if err != nil {
			s.Fatal(err)
		}
		st := s.state(d.Task)
		if _, err := s.Append(s.Context(), d.At(st.TailSeq, st.Attempt+next, boot)); err != nil {
			s.Fatal(err)
		}
	}
}

// ends has the holder record success.
func (s *site) ends(id subject.TaskID) {
	s.Helper()
	st := s.state(id)
	m := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(),
		message.WorkResult{TaskID: id, Status: message.ResultSuccess})
	m.Custom = message.Custom{AgentID: subject.AgentID(st.Holder)}
	s.says(tasklog.Write(tasklog.Succeeded, id, subject.Event(id, st.Holder), m))(0, st.Boot)
}

// put stores a message as anybody may who can speak to the broker.
func (s *site) put(subj, data string) {
	s.Helper()
	r, err := s.Send(subj, []byte(data))
	if err != nil {
		s.Fatal(err)
	}
	if err := r.Wait(s.Context()); err != nil {
		s.Fatal(err)
	}
}
