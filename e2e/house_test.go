// Package e2e uses the two programs as people do: built, started as processes, spoken to through the command line.
package e2e

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programs is the folder with both programs, built once for all tests.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "chiffon-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir+"/", "chiffon/orchestrator", "chiffon/agentrunner")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	programs = dir
	return m.Run()
}

// A house is one installation: an orchestrator with its broker, and what was started beside it.
type house struct {
	tb       testing.TB
	dir      string
	broker   string
	programs string // the folder with the programs it runs; "" is that of all tests
}

// patience is how long anything may take that takes a moment.
const patience = 60 * time.Second

// open starts an orchestrator in a folder of the test's own. It ends with the test.
func open(tb testing.TB, env ...string) *house {
	tb.Helper()
	h := &house{tb: tb, dir: tb.TempDir()}
	h.up(env...)
	return h
}

// up starts the orchestrator on free ports. It ends with the test, or by end.
func (h *house) up(env ...string) (end func()) {
	h.tb.Helper()
	up := h.command("orchestrator", append([]string{"ORCHESTRATOR_LISTEN=127.0.0.1:0", "ORCHESTRATOR_BROKER_LISTEN=127.0.0.1:0"}, env...), "up")
	var ready struct {
		Message string `json:"msg"`
		Broker  string `json:"broker"`
	}
	end = h.start(up, "orchestrator", func(line []byte) bool {
		return json.Unmarshal(line, &ready) == nil && ready.Message == "orchestrator is up"
	})
	h.broker = ready.Broker
	h.until("the orchestrator is ready", func() bool { return h.cli("task", "list").Run() == nil })
	return end
}

// runner starts an agentrunner and returns when it has registered. It ends with the test, or by end.
func (h *house) runner(id string, env ...string) (end func()) {
	h.tb.Helper()
	cmd := h.command("agentrunner", append([]string{
		"NATS_URL=" + h.broker, "AGENTRUNNER_ID=" + id, "AGENTRUNNER_STATE=" + filepath.Join(h.dir, "runner-"+id),
	}, env...), "run")
	end = h.start(cmd, "agentrunner "+id, nil)
	h.until("agent "+id+" is ready", func() bool {
		var agent struct {
			State     string `json:"state"`
			WorkTypes []any  `json:"work_types"`
		}
		out, err := h.cli("agent", "show", id, "-o", "json").Output()
		return err == nil && json.Unmarshal(out, &agent) == nil && agent.State == "ready" && len(agent.WorkTypes) > 0
	})
	return end
}

func (h *house) command(program string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(cmp.Or(h.programs, programs), program), args...)
	cmd.Dir = h.dir
	cmd.Env = append(append(os.Environ(), h.env()...), env...)
	return cmd
}

// env is what the command line needs to find this house.
func (h *house) env() []string {
	return []string{
		"HOME=" + h.dir, "XDG_CONFIG_HOME=" + filepath.Join(h.dir, "config"), "ORCHESTRATOR_STATE=" + filepath.Join(h.dir, "state"),
		"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH"), "STATE_DIRECTORY=", "ORCHESTRATOR_URL=", "NO_COLOR=1",
	}
}

// cli is one call of the command line.
func (h *house) cli(args ...string) *exec.Cmd { return h.command("orchestrator", nil, args...) }

// start runs a program until the test ends, shows its log there, and returns when a line of its log says that it is
// ready, at once if ready is nil. end asks it to stop, waits, and fails the test unless it ended well.
func (h *house) start(cmd *exec.Cmd, name string, ready func(line []byte) bool) (end func()) {
	h.tb.Helper()
	log, err := cmd.StderrPipe()
	if err != nil {
		h.tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.tb.Fatalf("start %s: %v", name, err)
	}
	seen, closed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(closed)
		defer io.Copy(io.Discard, log)
		once := sync.OnceFunc(func() { close(seen) })
		for lines := bufio.NewScanner(log); lines.Scan(); {
			fmt.Fprintf(h.tb.Output(), "%s: %s\n", name, lines.Bytes())
			if ready != nil && ready(lines.Bytes()) {
				once()
			}
		}
	}()
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-closed
		if err := cmd.Wait(); err != nil {
			h.tb.Errorf("%s ended badly: %v", name, err)
		}
	})
	h.tb.Cleanup(end)
	if ready == nil {
		return end
	}
	select {
	case <-seen:
	case <-closed:
		h.tb.Fatalf("%s ended before it was ready", name)
	case <-time.After(patience):
		h.tb.Fatalf("%s is not ready after %v", name, patience)
	}
	return end
}

// until asks again and again.
func (h *house) until(what string, ok func() bool) {
	h.tb.Helper()
	h.wait(patience, what, ok)
}

// wait is until with a patience of its own.
func (h *house) wait(patience time.Duration, what string, ok func() bool) {
	h.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			h.tb.Fatalf("not after %v: %s", patience, what)
		}
	}
}

// code is the exit code of a call; output is what it printed, for the test's log.
func code(tb testing.TB, cmd *exec.Cmd) (code int, output string) {
	tb.Helper()
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		tb.Fatalf("%s: %v", cmd, err)
	}
	return 0, string(out)
}
