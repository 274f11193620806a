package e2e

import (
	"bufio"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"chiffon/orchestrator/client"
)

// A runner that is stopped with its work is told of wherever its task is shown; a cancel waits for it, and what it does
// when it is back is the truth.
func TestSilentRunnerIsToldOf(t *testing.T) {
	t.Parallel()
	h := open(t, "ORCHESTRATOR_LEASE=8s")
	cmd := h.command("agentrunner", []string{
		"NATS_URL=" + h.broker, "AGENTRUNNER_ID=attic", "AGENTRUNNER_STATE=" + filepath.Join(h.dir, "runner"), "AGENTRUNNER_ALLOW_COMMANDS=*",
	}, "run")
	h.start(cmd, "agentrunner attic", nil)
	task, _, err := h.client().Submit(t.Context(), client.Submission{AgentType: "infra", WorkType: "run_command", Parameters: []byte(`{"argv": ["sleep", "600"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	id := task.TaskID
	says := func(what string, args ...string) {
		t.Helper()
		h.until(strings.Join(args, " ")+" says "+what, func() bool {
			out, err := h.cli(args...).Output()
			return err == nil && strings.Contains(string(out), what)
		})
	}
	says("runs on attic", "task", "why", id)
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGCONT) }) // it may have ended
	says("running (runner silent for ", "task", "list")
	says("running (runner silent for ", "task", "show", id)
	says("the work may still be running", "task", "why", id)
	says("attic is silent for ", "agent", "why", "attic")
	says(`"silent_since":"`, "task", "show", id, "-o", "json")
	says("cancelling (runner silent for ", "task", "cancel", id, "--reason", "enough")
	says("was being cancelled already, by admin", "task", "cancel", id)
	says("nobody can say that attic has stopped it", "task", "why", id)
	waiter := h.cli("task", "cancel", id, "--wait")
	talk, out := io.Pipe()
	waiter.Stdout, waiter.Stderr = out, out
	if err := waiter.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- waiter.Wait()
		_ = out.Close() // never fails
	}()
	lines := bufio.NewReader(talk)
	said, err := lines.ReadString('\n') // it waits
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err := errors.Join(err, <-ended); err != nil || !strings.Contains(string(rest), id+"  cancelled after ") {
		t.Errorf("cancel --wait: %v\n%s%s", err, said, rest)
	}
	says("cancelled	1	attic	attic", "task", "history", id)
}
