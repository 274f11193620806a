package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"chiffon/pkg/message"
)

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
