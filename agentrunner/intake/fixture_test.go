package intake_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/agentrunner/intake"
	"chiffon/agentrunner/spool"
	"chiffon/agentrunner/work"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
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
	"gate":      gate + "attempts: 2\n",
	"once":      gate + "attempts: 1\n",
	"lone":      gate + "concurrency: 1\n",
	"wide":      wide + "attempts: 2\n",
	"wide-once": wide + "attempts: 1\n",
	"hasty":     wide + "attempts: 2\nstop: {grace_seconds: 1}\n",
	"glutton": strings.Replace(gate, "echo through", "x=$(head -c 30000000 /dev/zero | tr '\\0' x); sleep 60; echo $x", 1) +
		"attempts: 2\nlimits: {max_memory_mb: 16}\n",
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

// wide is a tree that is hard to stop: it ignores the usual signal, and has a child that has left its group and ignores
// it too. SIGUSR2 ends the program itself, with a file <name>.told.
const wide = `
parameters: {type: object, additionalProperties: false, required: [file], properties: {file: {type: string}}}
command: [{script: true}, {param: file}]
script: |
  #!/bin/sh
  trap '' TERM
  trap 'touch "$1.told"; exit 7' USR2
  setsid sh -c 'trap "" TERM USR2; echo $$ >> "$0.up"; while true; do sleep 0.05; done' "$1" &
  echo $$ >> "$1.up"
  while true; do sleep 0.02; done
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
