package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

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

// cancel asks for the first attempt of a task to be stopped.
func (w *world) cancel(id subject.TaskID, c message.Cancel) {
	w.Helper()
	started := w.entry(id, tasklog.Started)
	m := message.New("orchestrator", "infra", message.NewUUID(), message.NewUUID(),
		message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom.Chiffon = &message.Extension{Cancel: &c}
	d, err := tasklog.Write(tasklog.CancelRequested, id, subject.Event(id, subject.Orchestrator), m)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.Append(w.Context(), d.At(started.Seq, 1, 0)); err != nil {
		w.Fatal(err)
	}
}

// hard is a tree that ignores SIGTERM and has a child that has left its group; SIGUSR2 ends the program itself.
const hard = `
parameters: {type: object, additionalProperties: false, required: [file], properties: {file: {type: string}}}
command: [{script: true}, {param: file}]
script: |
  #!/bin/sh
  trap '' TERM
  trap 'exit 7' USR2
  setsid sh -c 'trap "" TERM USR2; echo $$ > "$0.far"; while true; do sleep 0.05; done' "$1" &
  echo $$ > "$1.up"
  while true; do sleep 0.02; done
`

// runs reports whether the process whose id a file holds still runs, and belongs to this test.
func (w *world) runs(path string) bool {
	w.Helper()
	pid, err := os.ReadFile(path)
	if err != nil {
		w.Fatal(err)
	}
	line, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/cmdline")
	return err == nil && strings.Contains(string(line), strings.TrimSuffix(path, filepath.Ext(path)))
}

// Stop is wanted while the runner is dead and its work goes on: the next life learns of it at once, from the log, and
// stops the work as it was wanted.
func TestCancelWhileTheRunnerIsDead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cancel message.Cancel
		exit   int
	}{
		"kill after a grace":         {message.Cancel{By: "alice", GraceSeconds: 1}, 137},
		"the signal that was wanted": {message.Cancel{By: "alice", GraceSeconds: 1, Signal: "SIGUSR2"}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.reply.LeaseSeconds = 3600 // no look is due for long
			state := w.state(map[string]string{"once": hard + "attempts: 1\n"})
			first := w.run(state)
			door := filepath.Join(t.TempDir(), "door")
			id := w.submit("once", door)
			w.appears(door + ".up")
			w.appears(door + ".far")
			first.signal(syscall.SIGKILL)
			first.exits()
			w.cancel(id, test.cancel)
			w.run(state)
			r := w.entry(id, tasklog.Cancelled).Message.Result
			if w.runs(door+".up") || w.runs(door+".far") {
				t.Error("cancelled is written, and something of the work still runs")
			}
			if r.ExitCode != test.exit || !strings.Contains(r.Output, "cancelled by alice") {
				t.Errorf("reported %+v, want exit code %d", r, test.exit)
			}
			left, err := os.ReadDir(filepath.Join(state, "work"))
			if err != nil || len(left) != 0 {
				t.Errorf("left in the directory for work: %v, %v", left, err)
			}
		})
	}
}

// A runner that was stopped for a while learns of a cancel with its first step.
func TestCancelWhileTheRunnerIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run(w.state(map[string]string{"once": gate + "attempts: 1\n"}))
	door := filepath.Join(t.TempDir(), "door")
	id := w.submit("once", door)
	w.appears(door + ".up")
	p.signal(syscall.SIGSTOP)
	w.cancel(id, message.Cancel{})
	p.signal(syscall.SIGCONT)
	w.entry(id, tasklog.Cancelled)
	if w.runs(door + ".up") {
		t.Error("cancelled is written, and the work still runs")
	}
}

// Runner and supervisor are killed, so that nobody is left to end the work: by the first heartbeat of the next life nothing
// of it runs, for that heartbeat is what the orchestrator takes for proof.
func TestSweepBeforeTheFirstHeartbeat(t *testing.T) {
	t.Parallel()
	for _, attempts := range []string{"attempts: 1\n", "attempts: 4\n"} {
		t.Run(attempts, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			state := w.state(map[string]string{"hard": hard + attempts})
			first := w.run(state)
			door := filepath.Join(t.TempDir(), "door")
			id := w.submit("hard", door)
			w.appears(door + ".up")
			w.appears(door + ".far")
			boot := w.listens("of the first life", func(hb message.Heartbeat) bool { return len(hb.Running) == 1 }).Boot
			supervisor := parent(t, door+".up")
			first.signal(syscall.SIGSTOP) // so that it does not see its supervisor end
			if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			first.signal(syscall.SIGKILL)
			first.exits()
			w.mu.Lock()
			w.hear = func(hb message.Heartbeat) {
				if hb.Boot > boot && (w.runs(door+".up") || w.runs(door+".far")) {
					t.Error("a heartbeat of the next life was sent while work of the last still runs")
				}
			}
			w.mu.Unlock()
			w.run(state)
			hb := w.listens("of the next life", func(hb message.Heartbeat) bool { return hb.Boot > boot })
			if len(hb.Running) > 0 && hb.Running[0].TaskID != id {
				t.Errorf("the first heartbeat lists %+v", hb.Running)
			}
			want := map[string]tasklog.Kind{"attempts: 1\n": tasklog.Error, "attempts: 4\n": tasklog.AttemptFailed}[attempts]
			if e := w.entry(id, want); e.Message.Failure.Code != fault.AgentUnavailable || !e.Message.Custom.Chiffon.Begun {
				t.Errorf("reported %+v", e.Message.Failure)
			}
		})
	}
}

// parent is the process id of the parent of the process whose id a file holds.
func parent(t *testing.T, path string) int {
	t.Helper()
	pid, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The time of work that outlived its runner is held all the same.
func TestDurationOfASurvivor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state := w.state(map[string]string{"once": gate + "attempts: 1\nlimits: {max_duration_seconds: 2}\n"})
	first := w.run(state)
	door := filepath.Join(t.TempDir(), "door")
	id := w.submit("once", door)
	w.appears(door + ".up")
	first.signal(syscall.SIGKILL)
	first.exits()
	w.run(state)
	f := w.entry(id, tasklog.Error).Message.Failure
	if _, ok := f.Context["attempted_retries"]; f.Code != fault.Timeout || !ok || f.Context["last_attempt"] == nil {
		t.Errorf("reported %+v", f)
	}
	if w.runs(door + ".up") {
		t.Error("the work still runs")
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
