package child

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// survivor starts a command under a runner, kills that runner, and returns the file for the outcome.
func survivor(t *testing.T, c Command) (keep string, tree []int) {
	t.Helper()
	c.Survive, c.Keep = true, filepath.Join(t.TempDir(), "kept")
	cmd, out := runner(t, c)
	tree = pids(t, out, 2)
	kill(cmd)
	return c.Keep, tree
}

const patient = `echo $$; while :; do sleep 0.02; done`

// Cut between the start of a child and its end: the runner dies, and its next life stops the work.
func TestStopKeptTakesSignalAndGrace(t *testing.T) {
	t.Parallel()
	const tidy, deaf = `echo $$; trap "echo tidy; exit 3" INT; ` + patient, `trap "" INT; ` + runaway + patient
	cases := map[string]struct {
		script string
		signal syscall.Signal
		grace  time.Duration
		code   int
	}{
		"what obeys the signal ends by itself":       {tidy, syscall.SIGINT, time.Hour, 3},
		"what ignores it is killed after the grace":  {deaf, syscall.SIGINT, 10 * time.Millisecond, 137},
		"without a signal it is that of the command": {tidy, 0, time.Hour, 3},
		"without a grace it is that of the command":  {deaf, syscall.SIGINT, 0, 137},
		"SIGKILL needs no grace":                     {tidy, syscall.SIGKILL, time.Hour, 137},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, way func(Command) Command) {
				command := way(shell(c.script))
				command.Signal, command.Grace = syscall.SIGINT, 100*time.Millisecond
				keep, tree := survivor(t, command)
				if !StopKept(keep, c.signal, c.grace) {
					t.Fatal("StopKept found nobody")
				}
				k, err := Kept(t.Context(), keep)
				if err != nil || !k.Outcome.Stopped || k.Outcome.ExitCode != c.code {
					t.Errorf("Kept = %+v, %v; want stopped with exit code %d", k.Outcome, err, c.code)
				}
				if want := c.code == 3; strings.Contains(string(k.Output), "tidy") != want {
					t.Errorf("output %q", k.Output)
				}
				for _, pid := range tree {
					if alive(pid) {
						t.Errorf("process %d still runs", pid)
					}
				}
				if StopKept(keep, c.signal, c.grace) {
					t.Error("StopKept found somebody after the end")
				}
			})
		})
	}
}

func TestStopKeptShortensTheGrace(t *testing.T) {
	t.Parallel()
	keep, _ := survivor(t, shell(`trap "" INT; `+runaway+patient))
	if !StopKept(keep, syscall.SIGINT, time.Hour) || !StopKept(keep, syscall.SIGINT, 10*time.Millisecond) {
		t.Fatal("StopKept found nobody")
	}
	if k, err := Kept(t.Context(), keep); err != nil || k.Outcome.ExitCode != 137 {
		t.Errorf("Kept = %+v, %v", k.Outcome, err)
	}
}

func TestStopKeptReachesAStoppedSupervisor(t *testing.T) {
	t.Parallel()
	c := shell(runaway + patient)
	c.Survive, c.Keep = true, filepath.Join(t.TempDir(), "kept")
	cmd, out := runner(t, c)
	pids(t, out, 2)
	syscall.Kill(supervisorOf(t, cmd), syscall.SIGSTOP)
	kill(cmd)
	if !StopKept(c.Keep, syscall.SIGKILL, 0) {
		t.Fatal("StopKept found nobody")
	}
	if k, err := Kept(t.Context(), c.Keep); err != nil || !k.Outcome.Stopped {
		t.Errorf("Kept = %+v, %v", k.Outcome, err)
	}
}

func TestStopKeptWithoutSupervisor(t *testing.T) {
	t.Parallel()
	keep := filepath.Join(t.TempDir(), "kept")
	if StopKept(keep, 0, 0) {
		t.Error("StopKept found somebody, though there is no file")
	}
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if StopKept(keep, 0, 0) {
		t.Error("StopKept found somebody, though nobody holds the file")
	}
}

func TestMaxTimeEndsSurvivorWithoutRunner(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		c := way(shell(`trap "echo tidy; exit 3" INT; echo $$; ` + patient))
		c.Signal, c.Grace, c.MaxTime = syscall.SIGINT, time.Hour, time.Second
		keep, tree := survivor(t, c)
		k, err := Kept(t.Context(), keep)
		if err != nil || k.Outcome.OverTime != c.MaxTime || !k.Outcome.Stopped || k.Outcome.ExitCode != 3 {
			t.Errorf("Kept = %+v, %v; want ended after %v by its signal", k.Outcome, err, c.MaxTime)
		}
		for _, pid := range tree {
			if alive(pid) {
				t.Errorf("process %d still runs", pid)
			}
		}
	})
}

func TestMaxMemoryEndsSurvivorWithoutRunner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := shell(fmt.Sprintf(`cd %q; mkfifo go; %s echo $$; read x < go; x=$(head -c 60000000 /dev/zero | tr '\0' x); sleep 1000`, dir, runaway))
	c.MaxMemory = 40 << 20
	keep, _ := survivor(t, c)
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := Kept(t.Context(), keep)
	if err != nil || k.Outcome.OverUsed <= c.MaxMemory || k.Outcome.MaxMemory != c.MaxMemory {
		t.Errorf("Kept = %+v, %v; want ended for its memory", k.Outcome, err)
	}
}

func TestMaxTimeIsNoOutcomeOfWhatWasStoppedBefore(t *testing.T) {
	t.Parallel()
	c := shell(`trap "" INT; echo $$; while :; do sleep 0.02; done`)
	c.MaxTime = 2 * time.Second
	p := start(t, c)
	out := bufio.NewReader(p.Output())
	pids(t, out, 1)
	p.Stop(syscall.SIGINT, 2200*time.Millisecond)
	rest(t, p)
	if end := p.Wait(); end.OverTime != 0 || !end.Stopped || end.ExitCode != 137 {
		t.Errorf("outcome %+v, want stopped and killed after its grace", end)
	}
}
