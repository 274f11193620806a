package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSupervisorKilledEndsTheTree(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		for _, survive := range []bool{false, true} {
			c := shell(runaway + `echo $$; while :; do sleep 1; done`)
			c.Survive = survive
			p := start(t, way(c))
			out := bufio.NewReader(p.Output())
			tree := pids(t, out, 2)
			p.supervisor.Process.Kill()
			io.Copy(io.Discard, out)
			if end := p.Wait(); end.ExitCode != 137 || !strings.Contains(end.Err, "supervisor") {
				t.Errorf("outcome %+v", end)
			}
			for _, pid := range tree {
				if alive(pid) {
					t.Errorf("survive %t: process %d still runs", survive, pid)
				}
			}
			if left := groupsLeft(t, p.mark); len(left) > 0 {
				t.Errorf("survive %t: groups %q are left", survive, left)
			}
		}
	})
}

// playRunner is another process that runs a child and prints what the child prints, until it is killed.
func playRunner(spec string) {
	var o startOrder
	if err := json.Unmarshal([]byte(spec), &o); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	o.Command.noGroup = o.NoGroup
	if err := Inherit(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	p, err := Start(context.Background(), o.Command)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	io.Copy(os.Stdout, p.Output())
	os.Exit(p.Wait().ExitCode)
}

func runner(t *testing.T, c Command) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(startOrder{Command: c, NoGroup: c.noGroup})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "runner", string(spec))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

func kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// ended waits until a process has gone.
func ended(t *testing.T, pid int) {
	t.Helper()
	for tick := time.NewTicker(5 * time.Millisecond); alive(pid); {
		select {
		case <-tick.C:
		case <-time.After(10 * time.Second):
			t.Fatalf("process %d still runs", pid)
		}
	}
}

// Cut between the start of a child and its end: the runner dies. What is promised is one second.
func TestRunnerKilledEndsTheTree(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"that has left its group and ignores SIGTERM": runaway + `(` + runaway + `); trap "" TERM; while :; do sleep 1; done`,
		"that forks on and on":                        `sh "$1"; ` + runaway + runaway + `while :; do sleep 1; done`,
		"that is stopped":                             runaway + runaway + `kill -STOP $$`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, way func(Command) Command) {
				c := way(owned(shell(script, chain(t))))
				cmd, out := runner(t, c)
				pids(t, out, 2)
				kill(cmd)
				killed := time.Now()
				for tick := time.NewTicker(5 * time.Millisecond); len(markedBy(c.Owner)) > 0; <-tick.C {
					if time.Since(killed) > 10*time.Second {
						t.Fatalf("processes %v still run", markedBy(c.Owner))
					}
				}
				t.Logf("the tree had gone after %v", time.Since(killed))
			})
		})
	}
}

func TestRunnerKilledLetsSurvivorFinish(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// It goes on only when the test says so, and then writes far more than a pipe holds.
	script := fmt.Sprintf(`cd %q; mkfifo go; echo $$; read x < go; head -c 300000 /dev/zero; echo whole > result`, dir)
	c := shell(script)
	c.Survive = true
	cmd, out := runner(t, c)
	pid := pids(t, out, 1)[0]
	kill(cmd)
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended(t, pid)
	if text, err := os.ReadFile(filepath.Join(dir, "result")); string(text) != "whole\n" {
		t.Errorf("result %q, %v: the survivor did not finish", text, err)
	}
}

// Cut between the start of a child and its end: the runner dies, and its next life asks.
func TestOutcomeIsKeptForTheNextLife(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keep := filepath.Join(dir, "kept")
	c := shell(fmt.Sprintf(`cd %q; mkfifo go; echo $$; read x < go; head -c 400000 /dev/zero; echo the end; exit 3`, dir))
	c.Survive, c.Keep = true, keep
	cmd, out := runner(t, c)
	pids(t, out, 1)
	kill(cmd)
	now, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Kept(now, keep); !errors.Is(err, context.Canceled) {
		t.Errorf("Kept while it runs: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := Kept(t.Context(), keep)
	if err != nil || k.Outcome.ExitCode != 3 || k.Outcome.Stopped || len(k.Output) != KeptOutput || !strings.HasSuffix(string(k.Output), "\x00the end\n") {
		t.Errorf("Kept = %+v, %d bytes, %v", k.Outcome, len(k.Output), err)
	}
	if want := int64(400_000 + len("the end\n") - KeptOutput); k.Lost != want {
		t.Errorf("Kept has lost %d bytes, want %d", k.Lost, want)
	}
}

func TestOutcomeIsKeptThoughTheCallerLives(t *testing.T) {
	t.Parallel()
	c := shell("exit 4")
	c.Survive, c.Keep = true, filepath.Join(t.TempDir(), "kept")
	if _, end := whole(t, c); end.ExitCode != 4 {
		t.Errorf("outcome %+v", end)
	}
	if k, err := Kept(t.Context(), c.Keep); err != nil || k.Outcome.ExitCode != 4 || len(k.Output) != 0 || k.Lost != 0 {
		t.Errorf("Kept = %+v, %v", k, err)
	}
}

func TestNothingIsKeptBySupervisorKilled(t *testing.T) {
	t.Parallel()
	c := shell("echo $$; while :; do sleep 1; done")
	c.Survive, c.Keep = true, filepath.Join(t.TempDir(), "kept")
	p := start(t, c)
	out := bufio.NewReader(p.Output())
	pids(t, out, 1)
	p.supervisor.Process.Kill()
	io.Copy(io.Discard, out)
	p.Wait()
	if _, err := Kept(t.Context(), c.Keep); !errors.Is(err, ErrNotKept) {
		t.Errorf("Kept: %v, want ErrNotKept", err)
	}
}

// What a supervisor of a newer version has written is not guessed at.
func TestKeptByANewerVersion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(path, []byte(`{"v": 2, "Outcome": {"ExitCode": 0}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := Kept(t.Context(), path); !errors.Is(err, ErrNotKept) || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("Kept = %+v, %v, want ErrNotKept for its version", k, err)
	}
}
