//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// clockSource is a file added to the package time of programs that are built for this test: the wall clock is off by as
// many seconds as the file says that CHIFFON_TEST_CLOCK names. The monotonic clock goes on, as it does in life.
const clockSource = `package time

import (
	"sync/atomic"
	"syscall"
)

var clockOff atomic.Int64

func init() {
	if name, _ := syscall.Getenv("CHIFFON_TEST_CLOCK"); name != "" {
		go func() {
			for ; ; Sleep(20 * Millisecond) { // not in Now: that is called where no system call may be made
				clockOff.Store(clockRead(name))
			}
		}()
	}
}

func clockRead(name string) int64 {
	fd, err := open(name)
	if err != nil {
		return clockOff.Load()
	}
	buf := make([]byte, 32)
	n, _ := read(fd, buf)
	closefd(fd)
	off, sign := int64(0), int64(1)
	for _, c := range buf[:max(n, 0)] {
		switch {
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9':
			off = off*10 + int64(c-'0')
		}
	}
	return sign * off
}
`

// clockPrograms builds both programs with a wall clock that can be set, once.
var clockPrograms = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(programs, "clock")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	if strings.Count(string(text), now) != 1 {
		return "", fmt.Errorf("%s reads the clock in another way than this test knows", source)
	}
	changed := strings.Replace(string(text), now, "\tsec, nsec, mono := runtimeNow()\n\tsec += clockOff.Load()\n\tif mono == 0 {", 1)
	replace := map[string]string{filepath.Join(source, "time.go"): filepath.Join(dir, "time.go"), filepath.Join(source, "clockoffset.go"): filepath.Join(dir, "clockoffset.go")}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	for name, data := range map[string]string{"time.go": changed, "clockoffset.go": clockSource, "overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			return "", err
		}
	}
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", dir+"/", "chiffon/orchestrator", "chiffon/agentrunner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
})

// The wall clock of orchestrator, broker and runners jumps by an hour while tasks are queued, held, delivered and
// forgotten, running, and taken from a runner that is silent: each ends, once.
func TestClockJumps(t *testing.T) {
	dir, err := clockPrograms()
	if err != nil {
		t.Fatal(err)
	}
	for _, jump := range []string{"3600", "-3600"} {
		t.Run(jump+" s", func(t *testing.T) {
			t.Parallel()
			clockJumps(t, dir, jump)
		})
	}
}

func clockJumps(t *testing.T, dir, jump string) {
	h := &house{tb: t, dir: t.TempDir(), programs: dir}
	clock, gate, witness := filepath.Join(h.dir, "clock"), filepath.Join(h.dir, "gate"), filepath.Join(h.dir, "witness")
	env := []string{"CHIFFON_TEST_CLOCK=" + clock}
	h.up(append(env, "ORCHESTRATOR_LEASE=2s")...)
	types := filepath.Join(h.dir, "work.d")
	if err := os.Mkdir(types, 0o700); err != nil {
		t.Fatal(err)
	}
	// "once" waits at the gate; "again" may be repeated, and its first execution on a host never ends by itself.
	script := fmt.Sprintf("#!/bin/sh\necho \"$1\" >> %s\n", witness)
	for name, text := range map[string]string{
		"once":  "attempts: 1\nscript: |\n  " + strings.ReplaceAll(script+"while ! [ -e "+gate+" ]; do sleep 0.05; done\n", "\n", "\n  "),
		"again": "script: |\n  " + strings.ReplaceAll(script+"[ -e "+gate+" ] || sleep 1000\n", "\n", "\n  "),
		"short": "script: |\n  " + strings.ReplaceAll(script, "\n", "\n  "),
	} {
		text += "\ncommand: [{script: true}, {param: name}]\nparameters: {type: object, properties: {name: {type: string}}}\n"
		if err := os.WriteFile(filepath.Join(types, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := h.client()
	tasks := map[string]string{} // id by name
	submit := func(name, work string, more func(*client.Submission)) {
		s := client.Submission{AgentType: "infra", WorkType: work, Parameters: fmt.Appendf(nil, `{"name":%q}`, name), Name: name}
		if more != nil {
			more(&s)
		}
		task, _, err := c.Submit(t.Context(), s)
		if err != nil {
			t.Fatalf("submit %s: %v", name, err)
		}
		tasks[name] = task.TaskID
	}
	on := func(agent string) func(*client.Submission) {
		return func(s *client.Submission) { s.Agent = agent }
	}
	began := func(names ...string) {
		h.tb.Helper()
		for _, name := range names {
			h.until(name+" has begun", func() bool { return strings.Contains(read(witness), name+"\n") })
		}
	}
	runnerEnv := append(env, "AGENTRUNNER_WORK_DIRS="+types, "AGENTRUNNER_HEARTBEAT=1s", "AGENTRUNNER_LOG_LEVEL=warn")
	h.runner("one", append(runnerEnv, "AGENTRUNNER_SLOTS=2")...)
	submit("running", "once", on("one"))
	submit("running too", "once", on("one"))
	began("running", "running too")

	// A request is delivered to somebody who never says a word of it again.
	stolen := h.steal(func() { submit("delivered", "short", nil) })
	if stolen != tasks["delivered"] {
		t.Fatalf("delivered was %s, want %s", stolen, tasks["delivered"])
	}
	for n := range 3 {
		submit(fmt.Sprint("queued ", n), "short", on("one"))
	}
	submit("held", "short", func(s *client.Submission) { s.On = map[string]string{"site": "attic"} })
	silent := h.command("agentrunner", append(runnerEnv, "NATS_URL="+h.broker, "AGENTRUNNER_ID=two", "AGENTRUNNER_STATE="+filepath.Join(h.dir, "runner-two")), "run")
	if err := silent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = silent.Process.Kill(), silent.Wait() })
	h.until("runner two is ready", func() bool {
		out, err := h.cli("agent", "show", "two", "-o", "json").Output()
		return err == nil && strings.Contains(string(out), `"ready"`)
	})
	submit("retried", "again", on("two"))
	began("retried")
	if err := silent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(clock, []byte(jump), 0o600); err != nil {
		t.Fatal(err)
	}
	jumped := time.Now()
	after := 0
	h.until("the clock has jumped", func() bool {
		name := fmt.Sprint("after ", after)
		submit(name, "short", on("one"))
		after++
		task, err := c.Task(t.Context(), tasks[name])
		return err == nil && time.Until(task.SubmittedAt).Abs() > 50*time.Minute
	})
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.runner("attic", append(runnerEnv, "AGENTRUNNER_LABELS=site=attic")...)
	h.runner("two", runnerEnv...) // comes back: a higher boot that does not list what it had
	for name, id := range tasks {
		task, err := c.Wait(t.Context(), id)
		if err != nil || task.State != view.Succeeded {
			t.Errorf("%s is %s, %v", name, task.State, err)
		}
		t.Logf("%-12s ended %5.1f s after the jump, %d attempts", name, time.Since(jumped).Seconds(), task.Attempt)
	}
	h.once(tasks, witness, map[string]int{"retried": 2})
}

// steal pulls one request as a runner would, and keeps it without a word. It returns the task's id.
func (h *house) steal(submit func()) string {
	h.tb.Helper()
	nc, err := nats.Connect(h.broker)
	if err != nil {
		h.tb.Fatal(err)
	}
	h.tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		h.tb.Fatal(err)
	}
	submit()
	cons, err := js.Consumer(h.tb.Context(), subject.TasksStream, subject.TypeConsumer("infra", subject.Normal))
	if err != nil {
		h.tb.Fatal(err)
	}
	msgs, err := cons.Fetch(1, jetstream.FetchMaxWait(10*time.Second))
	if err != nil {
		h.tb.Fatal(err)
	}
	for m := range msgs.Messages() {
		p, _ := subject.Parse(m.Subject())
		return string(p.Task)
	}
	h.tb.Fatalf("nothing is delivered: %v", msgs.Error())
	return ""
}

// once holds each task's log against the witness: one end, and as many executions as there were attempts.
func (h *house) once(tasks map[string]string, witness string, attempts map[string]int) {
	h.tb.Helper()
	c, err := broker.Connect(broker.Config{URL: h.broker, Name: "test"})
	if err != nil {
		h.tb.Fatal(err)
	}
	defer c.Close()
	ran := read(witness)
	for name, id := range tasks {
		log, err := c.Task(h.tb.Context(), subject.TaskID(id))
		if err != nil {
			h.tb.Fatal(err)
		}
		ends := 0
		for _, e := range log {
			if e.Kind.End() {
				ends++
			}
		}
		want := max(attempts[name], 1)
		executed := strings.Count("\n"+ran, "\n"+name+"\n")
		if s := tasklog.Fold(log); ends != 1 || s.Attempt != want || executed != want || s.Void > 0 {
			h.tb.Errorf("%s: %d ends, %d attempts, %d executions, %d void entries, want 1, %d, %d, 0", name, ends, s.Attempt, executed, s.Void, want, want)
		}
	}
}
