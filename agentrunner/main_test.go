package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// The test binary plays the program when it is told to.
const play = "TEST_PLAYS_AGENTRUNNER"

func TestMain(m *testing.M) {
	if os.Getenv(play) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const patience = 30 * time.Second

// A world is a broker with the least orchestrator there can be.
type world struct {
	testing.TB
	*broker.Client
	server *broker.Server
	store  string
	url    string
	stop   func() // the orchestrator

	heard chan message.Heartbeat

	mu    sync.Mutex
	reply message.HeartbeatReply
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, store: t.TempDir(), heard: make(chan message.Heartbeat, 1000)}
	w.up("127.0.0.1:0")
	w.url = w.server.URL()
	names, err := w.TypeConsumers(t.Context(), "infra")
	if err != nil {
		t.Fatal(err)
	}
	w.reply = message.HeartbeatReply{ProtocolVersion: "1.0", LeaseSeconds: 3, Consumers: names}
	return w
}

// up starts broker and orchestrator.
func (w *world) up(listen string) {
	w.Helper()
	w.server, w.Client = natstest.Start(w, broker.ServerConfig{Dir: w.store, Relaxed: true, Listen: listen})
	c := w.Client
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Serve(ctx, subject.AllHeartbeats, w.heartbeat) })
	wg.Go(func() {
		_ = c.Serve(ctx, subject.AllCalls, func(ctx context.Context, _ string, data []byte) []byte { return w.get(ctx, c, data) })
	})
	w.stop = func() { stop(); wg.Wait() }
	w.Cleanup(w.stop)
}

// down stops both, as a host does that is restarted.
func (w *world) down() {
	w.stop()
	w.server.Stop()
}

func (w *world) heartbeat(_ context.Context, _ string, data []byte) []byte {
	hb, err := message.DecodeHeartbeat(data)
	if err != nil {
		w.Errorf("heartbeat %s: %v", data, err)
	}
	w.heard <- hb
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.json(w.reply)
}

func (w *world) json(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		w.Error(err)
	}
	return text
}

func (w *world) get(ctx context.Context, c *broker.Client, data []byte) []byte {
	var q struct {
		Task subject.TaskID `json:"task_id"`
	}
	if err := json.Unmarshal(data, &q); err != nil {
		w.Error(err)
	}
	var r broker.LogReply
	for m, err := range c.Range(ctx, subject.TasksStream, subject.Task(q.Task), 1) {
		if err != nil {
			return nil
		}
		r.Messages = append(r.Messages, m)
	}
	return w.json(r)
}

// listens waits for a heartbeat that is as it should be.
func (w *world) listens(what string, is func(message.Heartbeat) bool) message.Heartbeat {
	w.Helper()
	for after := time.After(patience); ; {
		select {
		case hb := <-w.heard:
			if is(hb) {
				return hb
			}
		case <-after:
			w.Fatalf("no heartbeat: %s", what)
		}
	}
}

func (w *world) submit(workType, file string) subject.TaskID {
	w.Helper()
	id := subject.TaskID(message.NewUUID())
	params := json.RawMessage("{}")
	if file != "" {
		params = w.json(map[string]string{"file": file})
	}
	m := message.New("orchestrator", "infra", message.NewUUID(), message.NewUUID(),
		message.WorkRequest{TaskID: id, WorkType: workType, Parameters: params})
	d, err := tasklog.Write(tasklog.Submitted, id, subject.Request(id, "infra", subject.Any, subject.Normal), m)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.Append(w.Context(), d.At(0, 0, 0)); err != nil {
		w.Fatal(err)
	}
	return id
}

// entry waits for an entry of a kind in a task's log.
func (w *world) entry(id subject.TaskID, kind tasklog.Kind) tasklog.Entry {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	var seen []tasklog.Kind
	for m, err := range w.Tail(ctx, subject.TasksStream, 1) {
		if err != nil {
			w.Fatal(err)
		}
		e := m.Entry()
		if e.Subject.Task != id {
			continue
		}
		if seen = append(seen, e.Kind); e.Kind == kind {
			return e
		}
	}
	w.Fatalf("log of the task is %v, want %s", seen, kind)
	return tasklog.Entry{}
}

// A process is the program as a user has it.
type process struct {
	w    *world
	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan struct{}
}

// run starts the program with a state directory and settings.
func (w *world) run(state string, env ...string) *process {
	w.Helper()
	own, err := os.Executable()
	if err != nil {
		w.Fatal(err)
	}
	p := &process{w: w, cmd: exec.Command(own, "run"), log: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), play+"=1", "NATS_URL="+w.url, "AGENTRUNNER_STATE="+state, "AGENTRUNNER_ID=one",
		"AGENTRUNNER_HEARTBEAT=100ms", "AGENTRUNNER_WORK_DIRS="+filepath.Join(state, "types"), "AGENTRUNNER_LOG_LEVEL=debug")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its ProcessState tells
		close(p.done)
	}()
	w.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.done
		if w.Failed() {
			w.Logf("agentrunner: %s\n%s", p.cmd.ProcessState, p.log)
		}
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.w.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.w.Fatal(err)
	}
}

// exits waits for the end and tells the exit code and what was logged.
func (p *process) exits() (int, string) {
	p.w.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.w.Fatal("agentrunner does not end")
	}
	return p.cmd.ProcessState.ExitCode(), p.log.String()
}

const gate = `
parameters: {type: object, additionalProperties: false, required: [file], properties: {file: {type: string}}}
command: [{script: true}, {param: file}]
script: |
  #!/bin/sh
  echo $$ > "$1.up"
  while ! test -e "$1.go"; do sleep 0.02; done
  touch "$1.done"
  test -e "$1.go6" && echo through && exit 6
  exit 0
`

func (w *world) state(types map[string]string) string {
	w.Helper()
	state := filepath.Join(w.TempDir(), "state")
	if err := os.MkdirAll(filepath.Join(state, "types"), 0o700); err != nil {
		w.Fatal(err)
	}
	for name, text := range types {
		w.write(filepath.Join(state, "types", name+".yaml"), text)
	}
	return state
}

func (w *world) write(path, text string) {
	w.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// appears waits for a file that a child makes.
func (w *world) appears(path string) {
	w.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for after := time.After(patience); ; {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-after:
			w.Fatalf("%s does not appear", path)
		case <-tick.C:
		}
	}
}

func offers(hb message.Heartbeat, name string) bool {
	return slices.ContainsFunc(hb.WorkTypes, func(o message.Offer) bool { return o.Name == name })
}

func TestRegistersWorksAndDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state := w.state(map[string]string{"gate": gate})
	p := w.run(state, "AGENTRUNNER_SLOTS=2", "AGENTRUNNER_LABELS=site=attic", "AGENTRUNNER_CAPABILITIES=docker,gpu")
	hb := w.listens("with its offers", func(hb message.Heartbeat) bool { return offers(hb, "gate") && offers(hb, "noop") })
	if hb.AgentID != "one" || hb.Slots != 2 || hb.Labels["site"] != "attic" || !slices.Contains(hb.Capabilities, "gpu") ||
		hb.State != "ready" || hb.Boot == 0 || hb.Instance == "" || hb.Host == "" {
		t.Errorf("heartbeat %+v", hb)
	}
	w.entry(w.submit("noop", ""), tasklog.Succeeded)

	w.write(filepath.Join(state, "types", "new.yaml"), "command: [\"true\"]\n")
	p.signal(syscall.SIGHUP)
	w.listens("with the new work type", func(hb message.Heartbeat) bool { return offers(hb, "new") })

	door := filepath.Join(t.TempDir(), "door")
	id := w.submit("gate", door)
	w.appears(door + ".up")
	w.listens("with what runs", func(hb message.Heartbeat) bool { return len(hb.Running) == 1 && hb.Running[0].TaskID == id })
	p.signal(syscall.SIGTERM)
	w.listens("while it drains", func(hb message.Heartbeat) bool { return hb.State == "draining" && len(hb.Running) == 1 })
	w.write(door+".go", "")
	w.entry(id, tasklog.Succeeded)
	if code, log := p.exits(); code != 0 || !strings.Contains(log, "agentrunner is drained") {
		t.Errorf("exit code %d", code)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		env  string
		code int
		want string
	}{
		"a broker elsewhere": {"NATS_URL=nats://192.0.2.1:4222", 1, "NATS_URL: 192.0.2.1:4222 is not on a loopback address"},
		"a wrong setting":    {"AGENTRUNNER_SLOTS=many", 1, `AGENTRUNNER_SLOTS: "many" is not a whole number`},
		"a misspelt setting": {"AGENTRUNNER_SLOT=2", 1, "did you mean AGENTRUNNER_SLOTS?"},
		"a reserved id":      {"AGENTRUNNER_ID=any", 1, "AGENTRUNNER_ID"},
	} {
		if code, log := w.run(w.state(nil), test.env).exits(); code != test.code || !strings.Contains(log, test.want) {
			t.Errorf("%s: exit code %d, said %q, want %d and %q", name, code, log, test.code, test.want)
		}
	}
	state := w.state(nil)
	w.run(state)
	w.listens("of the first", func(message.Heartbeat) bool { return true })
	if code, log := w.run(state).exits(); code != 1 || !strings.Contains(log, "another agentrunner uses it") {
		t.Errorf("a second process: exit code %d, said %q", code, log)
	}
	for name, reply := range map[string]message.HeartbeatReply{
		"refused":  {Error: new(message.FailureOf(fault.New(fault.AuthenticationFailed, "another type has this id")))},
		"replaced": {StopAll: true},
	} {
		w.mu.Lock()
		w.reply = reply
		w.mu.Unlock()
		if code, log := w.run(w.state(nil)).exits(); code != 4 {
			t.Errorf("%s: exit code %d, said %q, want 4", name, code, log)
		}
	}
}

// The runner is killed while work runs: what may be repeated dies with it, other work goes on to its end, and the next
// life reports both and runs neither again.
func TestKilledWhileWorkRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state := w.state(map[string]string{"again": gate, "once": gate + "attempts: 1\n"})
	first := w.run(state, "AGENTRUNNER_SLOTS=2")
	again, once := filepath.Join(t.TempDir(), "door"), filepath.Join(t.TempDir(), "door")
	repeatable, single := w.submit("again", again), w.submit("once", once)
	w.appears(again + ".up")
	w.appears(once + ".up")
	first.signal(syscall.SIGKILL)
	first.exits()

	w.run(state, "AGENTRUNNER_SLOTS=2")
	e := w.entry(repeatable, tasklog.AttemptFailed)
	if f := e.Message.Failure; f.Code != fault.AgentUnavailable || !e.Message.Custom.Chiffon.Begun {
		t.Errorf("reported %+v", f)
	}
	// its slot is free, and what goes on is still in hand
	w.entry(w.submit("noop", ""), tasklog.Succeeded)
	w.listens("with what goes on", func(hb message.Heartbeat) bool { return len(hb.Running) == 1 && hb.Running[0].TaskID == single })
	w.write(once+".go6", "")
	w.write(once+".go", "")
	e = w.entry(single, tasklog.Failed)
	if r := e.Message.Result; r.ExitCode != 6 || r.Output != "through\n" || r.ResourcesUsed.DurationSeconds < 1 {
		t.Errorf("reported %+v", r)
	}
	if _, err := os.Stat(once + ".done"); err != nil {
		t.Errorf("work that may not be repeated did not end by itself: %v", err)
	}
	if _, err := os.Stat(again + ".done"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("repeatable work went on after its runner: %v", err)
	}
}

// Stop is wanted while the runner is dead and its work goes on: the next life stops it.
func TestCancelWhileTheRunnerIsDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state := w.state(map[string]string{"once": gate + "attempts: 1\n"})
	first := w.run(state)
	door := filepath.Join(t.TempDir(), "door")
	id := w.submit("once", door)
	w.appears(door + ".up")
	first.signal(syscall.SIGKILL)
	first.exits()

	started := w.entry(id, tasklog.Started)
	m := message.New("orchestrator", "infra", message.NewUUID(), message.NewUUID(),
		message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom.Chiffon = &message.Extension{Cancel: &message.Cancel{By: "alice"}}
	d, err := tasklog.Write(tasklog.CancelRequested, id, subject.Event(id, subject.Orchestrator), m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), d.At(started.Seq, 1, 0)); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.reply.Cancel = []subject.TaskID{id}
	w.mu.Unlock()
	w.run(state)
	if r := w.entry(id, tasklog.Cancelled).Message.Result; r.ExitCode != 128+int(syscall.SIGTERM) {
		t.Errorf("reported %+v", r)
	}
	left, err := os.ReadDir(filepath.Join(state, "work"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in the directory for work: %v, %v", left, err)
	}
}

// The orchestrator's host is away while work of a single try runs to its end: the work is not touched, and all that it
// has said and come to is told when the host is back.
func TestBrokerAwayWhileWorkRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run(w.state(map[string]string{"once": gate + "attempts: 1\n"}))
	door := filepath.Join(t.TempDir(), "door")
	id := w.submit("once", door)
	w.appears(door + ".up")
	w.down()
	w.write(door+".go6", "")
	w.write(door+".go", "")
	w.appears(door + ".done")
	w.up(strings.TrimPrefix(w.url, "nats://"))
	end := w.entry(id, tasklog.Failed)
	if end.Message.Result.ExitCode != 6 || end.Message.Custom.OutputBytes != int64(len("through\n")) {
		t.Errorf("ended with %+v, %+v", end.Message.Result, end.Message.Custom)
	}
	ids, output := map[message.UUID]bool{}, ""
	for m, err := range w.Range(t.Context(), subject.StatusStream, subject.Status(id, "one"), 1) {
		if err != nil {
			t.Fatal(err)
		}
		s, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if !ids[s.MessageID] && s.Payload.Step != nil {
			output += s.Payload.Step.Output
		}
		ids[s.MessageID] = true
	}
	if output != "through\n" || len(ids) != end.Message.Custom.Chiffon.StatusCount {
		t.Errorf("%d statuses with output %q, the end says %d", len(ids), output, end.Message.Custom.Chiffon.StatusCount)
	}
	p.signal(syscall.SIGTERM)
	if code, _ := p.exits(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestCheckAndVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{
		"good.yaml":    "command: [\"true\"]\n",
		"missing.yaml": "command: [no-such-program-here]\n",
		"bad.yaml":     "comand: [\"true\"]\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		args []string
		ok   bool
		want []string
	}{
		"good":    {[]string{"check", filepath.Join(dir, "good.yaml")}, true, []string{"good", "offered"}},
		"missing": {[]string{"check", filepath.Join(dir, "missing.yaml")}, true, []string{"not offered", "no-such-program-here"}},
		"bad": {[]string{"check", filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "good.yaml")}, false,
			[]string{filepath.Join(dir, "bad.yaml") + ":1: ", "command", "good"}},
		"version": {[]string{"version"}, true, []string{"agentrunner ", "protocol 1.0"}},
		"help":    {nil, true, []string{"agentrunner check [FILE…]"}},
		"unknown": {[]string{"dance"}, false, nil},
		"excess":  {[]string{"version", "please"}, false, nil},
	} {
		var out bytes.Buffer
		err := command(t.Context(), nil, test.args, &out, &out)
		if (err == nil) != test.ok {
			t.Errorf("%s: command(%q) = %v", name, test.args, err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: command(%q) printed %q, want %q in it", name, test.args, out.String(), want)
			}
		}
	}
}
