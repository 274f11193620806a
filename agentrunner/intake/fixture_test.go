package intake_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/agentrunner/intake"
	"chiffon/agentrunner/spool"
	"chiffon/agentrunner/work"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

const agentType subject.AgentType = "infra"

// workTypes are what the agents of the tests offer. Each script is told by files what to do, so that no test has to
// wait for time to pass.
var workTypes = map[string]string{
	"talk": `
steps: {pattern: '^== (?P<number>\d+)/(?P<total>\d+) (?P<name>.*)$'}
parameters: {type: object, additionalProperties: false, properties: {code: {type: integer}}}
command: [{script: true}, {param: code}]
script: |
  #!/bin/sh
  echo "== 1/2 begin"
  echo hello
  echo "== 2/2 finish"
  echo bye
  exit ${1:-0}
`,
	"gate": gate + "attempts: 2\n",
	"once": gate + "attempts: 1\n",
	"lone": gate + "concurrency: 1\n",
	"big": `
command: [sh, -c, "head -c 1000000 /dev/zero | tr '\\0' x"]
`,
	"hungry": `
attempts: 2
limits: {max_memory_mb: 16}
command: [sh, -c, "x=$(head -c 30000000 /dev/zero | tr '\\0' x); sleep 60; echo $x"]
`,
	"chatty": `
attempts: 2
limits: {max_output: 1KiB}
command: [sh, -c, "head -c 100000 /dev/zero"]
`,
	"private": `
allow: [boss]
command: ["true"]
`,
	"brief": `
limits: {max_duration_seconds: 1}
command: [sleep, "60"]
`,
}

// gate says that it runs by a file <name>.up, and runs until there is a file <name>.go.
const gate = `
parameters: {type: object, additionalProperties: false, required: [file], properties: {file: {type: string}}}
command: [{script: true}, {param: file}]
script: |
  #!/bin/sh
  echo $$ >> "$1.up"
  while ! test -e "$1.go"; do sleep 0.02; done
  echo through
`

// A world is a broker with the least orchestrator there can be: it writes requests and shows logs.
type world struct {
	testing.TB
	*broker.Client
	server *broker.Server
	types  string

	// answer, when set, may answer in place of get; it says so.
	answer func() (answer []byte, done bool)
	page   int // how many messages one answer has; 2, so that every log has several pages
}

func newWorld(t testing.TB) *world {
	t.Helper()
	s, c := natstest.Start(t, broker.ServerConfig{Dir: t.TempDir(), Relaxed: true})
	w := &world{TB: t, Client: c, server: s, types: t.TempDir(), page: 2}
	for name, text := range workTypes {
		if err := os.WriteFile(filepath.Join(w.types, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.TypeConsumers(t.Context(), agentType); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx, subject.AllCalls, w.call) }()
	t.Cleanup(func() { stop(); <-done })
	return w
}

func (w *world) call(ctx context.Context, _ string, data []byte) []byte {
	if w.answer != nil {
		if answer, done := w.answer(); done {
			return answer
		}
	}
	return w.get(ctx, data)
}

// get answers an agent that asks for a task's log, page by page. Void messages have no bodies.
func (w *world) get(ctx context.Context, data []byte) []byte {
	var q struct {
		Task subject.TaskID `json:"task_id"`
		From uint64         `json:"from"`
	}
	var r broker.LogReply
	if err := json.Unmarshal(data, &q); err != nil {
		w.Error(err)
	}
	for m, err := range w.Range(ctx, subject.TasksStream, subject.Task(q.Task), q.From) {
		if err != nil {
			return nil
		}
		if len(r.Messages) == w.page {
			r.Next = m.Seq
			break
		}
		if m.Entry().Err != nil {
			m.Data = nil
		}
		r.Messages = append(r.Messages, m)
	}
	text, err := json.Marshal(r)
	if err != nil {
		w.Error(err)
	}
	return text
}

// An order is a request to be made.
type order struct {
	workType string
	params   string
	priority subject.Priority
	hints    *message.Hints
	by       string
}

func (o *order) request(id subject.TaskID) message.Message[message.WorkRequest] {
	if o.params == "" {
		o.params = "{}"
	}
	if o.priority == "" {
		o.priority = subject.Normal
	}
	m := message.New("orchestrator", agentType, message.NewUUID(), message.NewUUID(), message.WorkRequest{
		TaskID: id, WorkType: o.workType, Parameters: json.RawMessage(o.params), Hints: o.hints,
	})
	m.Custom.Chiffon = &message.Extension{SubmittedBy: o.by}
	return m
}

// submit puts a request into the log.
func (w *world) submit(o order) subject.TaskID {
	w.Helper()
	id := subject.TaskID(message.NewUUID())
	w.request(id, tasklog.Submitted, o, 0, 0)
	return id
}

func (w *world) request(id subject.TaskID, kind tasklog.Kind, o order, tail uint64, attempt int) {
	w.Helper()
	m := o.request(id)
	w.append(tasklog.Write(kind, id, subject.Request(id, agentType, subject.Any, o.priority), m))(tail, attempt)
}

// append makes what stores a draft, once it is told where.
func (w *world) append(d tasklog.Draft, err error) func(tail uint64, attempt int) uint64 {
	w.Helper()
	return func(tail uint64, attempt int) uint64 {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		seq, err := w.Append(w.Context(), d.At(tail, attempt, 0))
		if err != nil {
			w.Fatal(err)
		}
		return seq
	}
}

// cancel asks for a running task to be stopped.
func (w *world) cancel(id subject.TaskID, c message.Cancel) {
	w.Helper()
	st := w.state(id)
	m := message.New("orchestrator", agentType, message.NewUUID(), message.NewUUID(),
		message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom.Chiffon = &message.Extension{Cancel: &c}
	w.append(tasklog.Write(tasklog.CancelRequested, id, subject.Event(id, subject.Orchestrator), m))(st.TailSeq, st.Attempt)
}

// revoke takes an attempt away for silence.
func (w *world) revoke(id subject.TaskID) {
	w.Helper()
	st := w.state(id)
	m := message.New("orchestrator", agentType, message.NewUUID(), message.NewUUID(), message.Failure{Code: 5001, Message: "silent"})
	m.Custom.Chiffon = &message.Extension{Silent: true}
	w.append(tasklog.Write(tasklog.AttemptFailed, id, subject.Event(id, subject.Orchestrator), m))(st.TailSeq, st.Attempt)
}

// requeue gives a failed task its next attempt.
func (w *world) requeue(id subject.TaskID, o order) {
	w.Helper()
	st := w.state(id)
	w.request(id, tasklog.Queued, o, st.TailSeq, st.Attempt)
}

func (w *world) state(id subject.TaskID) tasklog.State {
	w.Helper()
	log, err := w.Task(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return tasklog.Fold(log)
}

const patience = 30 * time.Second

// until reads the task log from its beginning until seen is content; void entries fail the test.
func (w *world) until(what string, seen func(tasklog.Entry, tasklog.State) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	states := map[subject.TaskID]tasklog.State{}
	for m, err := range w.Tail(ctx, subject.TasksStream, 1) {
		if err != nil {
			w.Fatal(err)
		}
		e := m.Entry()
		st, _ := states[e.Subject.Task].Next(e)
		states[e.Subject.Task] = st
		if seen(e, st) {
			return
		}
	}
	w.Fatalf("waited %s for %s", patience, what)
}

// entry waits for an entry of a kind in a task's log.
func (w *world) entry(id subject.TaskID, kind tasklog.Kind) (found tasklog.Entry) {
	w.Helper()
	w.until(string(kind)+" of "+string(id), func(e tasklog.Entry, st tasklog.State) bool {
		if e.Subject.Task != id {
			return false
		}
		if e.Kind != kind && st.Phase == tasklog.PhaseEnded {
			w.Fatalf("task ended with %s %+v, want %s", e.Kind, e.Message.Failure, kind)
		}
		found = e
		return e.Kind == kind
	})
	return found
}

// kinds lists a task's log.
func (w *world) kinds(id subject.TaskID) (list []tasklog.Kind) {
	w.Helper()
	log, err := w.Task(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range log {
		list = append(list, e.Kind)
	}
	return list
}

// statuses lists what an agent has said about a task.
func (w *world) statuses(id subject.TaskID) (list []message.Message[message.WorkStatus]) {
	w.Helper()
	for m, err := range w.Range(w.Context(), subject.StatusStream, "chiffon.task."+string(id)+".status.*", 1) {
		if err != nil {
			w.Fatal(err)
		}
		s, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			w.Fatal(err)
		}
		list = append(list, s)
	}
	return list
}

// An agent is an intake under test.
type agent struct {
	*intake.Intake
	state string
	stop  func(cause error) // ends it and waits
}

// agent starts one. Its state directory stays when it is stopped.
func (w *world) agent(name subject.AgentID, set ...func(*intake.Config)) *agent {
	w.Helper()
	return w.agentIn(name, filepath.Join(w.TempDir(), "state"), set...)
}

func (w *world) agentIn(name subject.AgentID, dir string, set ...func(*intake.Config)) *agent {
	w.Helper()
	sp, err := spool.Open(dir)
	if err != nil {
		w.Fatal(err)
	}
	catalogue, problems := work.Load(work.Config{Dirs: []string{w.types}, Env: os.Environ()})
	for _, p := range problems {
		w.Fatal(p)
	}
	log := natstest.Log(w)
	cfg := intake.Config{
		Broker: natstest.Connect(w, broker.Config{Embedded: w.server, Name: string(name), Log: log, Timeout: 2 * time.Second}),
		Spool:  sp, Agent: name, Type: agentType, Host: "host", Slots: 1, Log: log.With("agent_id", name),
		Work: func() *work.Catalogue { return catalogue }, Dir: filepath.Join(dir, "work"),
		Lease: 3 * time.Second, KillGrace: 200 * time.Millisecond, Drain: patience,
	}
	for _, f := range set {
		f(&cfg)
	}
	i, err := intake.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(w.Context()))
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	a := &agent{Intake: i, state: dir}
	var once sync.Once
	a.stop = func(cause error) {
		once.Do(func() {
			cancel(cause)
			if err := <-done; err != nil {
				w.Errorf("agent %s: %v", name, err)
			}
			if err := sp.Close(); err != nil {
				w.Error(err)
			}
		})
	}
	w.Cleanup(func() { a.stop(intake.ErrAtOnce) })
	a.Control(message.HeartbeatReply{Consumers: consumers()})
	return a
}

func consumers() (names []string) {
	for _, p := range subject.Priorities {
		names = append(names, subject.TypeConsumer(agentType, p))
	}
	return names
}

// A door lets a gate work type through.
type door struct {
	w    *world
	path string
}

func (w *world) door() door { return door{w, filepath.Join(w.TempDir(), "door")} }

func (d door) params() string {
	text, err := json.Marshal(map[string]string{"file": d.path})
	if err != nil {
		d.w.Fatal(err)
	}
	return string(text)
}

func (d door) open() {
	d.w.Helper()
	if err := os.WriteFile(d.path+".go", nil, 0o600); err != nil {
		d.w.Fatal(err)
	}
}

// begun waits until the work runs n times, and returns the process ids.
func (d door) begun(n int) []byte {
	d.w.Helper()
	ctx, cancel := context.WithTimeout(d.w.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(d.path + ".up")
		lines := 0
		for _, b := range text {
			if b == '\n' {
				lines++
			}
		}
		if err == nil && lines >= n {
			return text
		}
		select {
		case <-ctx.Done():
			d.w.Fatalf("the work did not begin %d times", n)
		case <-tick.C:
		}
	}
}

// waiting describes a consumer.
func (w *world) waiting(p subject.Priority) *jetstream.ConsumerInfo {
	w.Helper()
	c, err := w.Consumer(w.Context(), subject.TypeConsumer(agentType, p))
	if err != nil {
		w.Fatal(err)
	}
	return c.CachedInfo()
}

// settled waits until every request of a priority is acknowledged.
func (w *world) settled(p subject.Priority) {
	w.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for {
		if i := w.waiting(p); i.NumAckPending == 0 && i.NumPending == 0 {
			return
		}
		select {
		case <-ctx.Done():
			w.Fatalf("requests of priority %s are not acknowledged: %+v", p, w.waiting(p))
		case <-tick.C:
		}
	}
}

// snatch takes a request out of the queue without answering it.
func (w *world) snatch(p subject.Priority) jetstream.Msg {
	w.Helper()
	c, err := w.Consumer(w.Context(), subject.TypeConsumer(agentType, p))
	if err != nil {
		w.Fatal(err)
	}
	m, err := c.Next()
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// requestAgainAndRun queues a task anew and waits for its success.
func (w *world) requestAgainAndRun(id subject.TaskID) {
	w.Helper()
	w.requeue(id, order{workType: "talk"})
	w.entry(id, tasklog.Succeeded)
}

// late waits for the status of an outcome that the log did not take.
func (w *world) late(id subject.TaskID) (found message.Message[message.WorkStatus]) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for m, err := range w.Tail(ctx, subject.StatusStream, 1) {
		if err != nil {
			w.Fatal(err)
		}
		s, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			w.Fatal(err)
		}
		if x := s.Custom.Chiffon; s.Payload.TaskID == id && x != nil && x.Late {
			return s
		}
	}
	w.Fatal("no status of a late outcome")
	return found
}

// eventually waits for what nobody announces.
func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			w.Fatalf("waited %s: %s", patience, what)
		case <-tick.C:
		}
	}
}
