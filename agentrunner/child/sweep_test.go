package child

import (
	"bufio"
	"context"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bothWays runs a test in control groups, where they can be made, and without.
func bothWays(t *testing.T, test func(t *testing.T, way func(Command) Command)) {
	t.Helper()
	t.Run("with control group", func(t *testing.T) {
		t.Parallel()
		if _, err := Home(); err != nil {
			t.Skip(err)
		}
		test(t, func(c Command) Command { return c })
	})
	t.Run("without control group", func(t *testing.T) {
		t.Parallel()
		test(t, func(c Command) Command { c.noGroup = true; return c })
	})
}

// owned is a command under an owner that no other test has.
func owned(c Command) Command {
	c.Owner = "test-" + rand.Text()
	return c
}

func groupsLeft(t *testing.T, m mark) []string {
	t.Helper()
	s := sweep{owner: m.owner, only: m.run}
	return s.groups()
}

// supervisorOf finds the supervisor of a runner's only child.
func supervisorOf(t *testing.T, runner *exec.Cmd) int {
	t.Helper()
	for _, p := range descendants(runner.Process.Pid) {
		if readMark(p.pid).supervisor {
			return p.pid
		}
	}
	t.Fatal("no supervisor")
	return 0
}

func swept(t *testing.T, owner string, keeps ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n, err := Sweep(ctx, owner, keeps...)
	if err != nil {
		t.Errorf("Sweep: %v", err)
	}
	return n
}

// Cut between the start of a child and its end: the supervisor dies, then the runner.
func TestSweepEndsWhatRunnerAndSupervisorLeft(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		for _, survive := range []bool{false, true} {
			c := way(owned(shell(runaway + runaway + `exec sleep 1000`)))
			c.Survive = survive
			cmd, out := runner(t, c)
			tree := pids(t, out, 2)
			sup := supervisorOf(t, cmd)
			syscall.Kill(cmd.Process.Pid, syscall.SIGSTOP) // it must not sweep by itself
			syscall.Kill(sup, syscall.SIGKILL)
			kill(cmd)
			ended(t, sup)
			for _, pid := range tree {
				if !alive(pid) {
					t.Fatalf("process %d is dead before the sweep", pid)
				}
			}
			if n := swept(t, c.Owner); n < 2 {
				t.Errorf("Sweep killed %d", n)
			}
			for _, pid := range tree {
				if alive(pid) {
					t.Errorf("process %d still runs", pid)
				}
			}
			if left := groupsLeft(t, mark{owner: c.Owner}); len(left) > 0 {
				t.Errorf("groups %q are left", left)
			}
			if n := swept(t, c.Owner); n != 0 {
				t.Errorf("a second Sweep killed %d", n)
			}
		}
	})
}

// It has taken the mark out of its environment.
func TestSweepFindsByItsGroupWhatHasNoMark(t *testing.T) {
	t.Parallel()
	home(t)
	c := owned(shell(strings.ReplaceAll(runaway, "sh -c", "env -i "+env[0]+" sh -c") + `echo $$; exec sleep 1000`))
	cmd, out := runner(t, c)
	tree := pids(t, out, 2)
	syscall.Kill(cmd.Process.Pid, syscall.SIGSTOP)
	sup := supervisorOf(t, cmd)
	syscall.Kill(sup, syscall.SIGKILL)
	kill(cmd)
	ended(t, sup)
	if n := swept(t, c.Owner); n < 1 {
		t.Errorf("Sweep killed %d", n)
	}
	for _, pid := range tree {
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

// Cut between the making of a group and the start of the program: the supervisor dies.
func TestSweepRemovesEmptyGroups(t *testing.T) {
	t.Parallel()
	dir := home(t)
	m, err := newMark("test-" + rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, m.group(), "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	if n := swept(t, m.owner); n != 0 {
		t.Errorf("Sweep killed %d", n)
	}
	if left := groupsLeft(t, mark{owner: m.owner}); len(left) > 0 {
		t.Errorf("groups %q are left", left)
	}
}

func TestSweepEndsTheTreeOfAStoppedSupervisor(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		c := way(owned(shell(runaway + `echo $$; exec sleep 1000`)))
		cmd, out := runner(t, c)
		tree := append(pids(t, out, 2), supervisorOf(t, cmd))
		syscall.Kill(tree[2], syscall.SIGSTOP)
		kill(cmd)
		swept(t, c.Owner)
		for _, pid := range tree {
			if alive(pid) {
				t.Errorf("process %d still runs", pid)
			}
		}
	})
}

func TestSweepSparesWhatIsLetFinish(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		c := way(owned(shell(runaway + `echo $$; exec sleep 1000`)))
		c.Survive, c.Keep = true, filepath.Join(t.TempDir(), "kept")
		cmd, out := runner(t, c)
		tree := pids(t, out, 2)
		kill(cmd)
		if n := swept(t, c.Owner, c.Keep); n != 0 {
			t.Errorf("Sweep killed %d", n)
		}
		for _, pid := range tree {
			if !alive(pid) {
				t.Errorf("process %d was killed", pid)
			}
		}
		if !StopKept(c.Keep, syscall.SIGKILL, 0) {
			t.Error("StopKept found nobody")
		}
		if k, err := Kept(t.Context(), c.Keep); err != nil || !k.Outcome.Stopped || k.Outcome.ExitCode != 137 {
			t.Errorf("Kept = %+v, %v", k.Outcome, err)
		}
	})
}

func TestSweepSparesOwnChildrenAndOtherOwners(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		mine := start(t, way(owned(shell(`exec sleep 1000`))))
		c := owned(mine.command)
		c.Owner = mine.command.Owner + "-2" // begins alike
		cmd, out := runner(t, way(Command{Path: "sh", Args: []string{"-c", "echo $$; exec sleep 1000"}, Env: env, Owner: c.Owner}))
		other := pids(t, out, 1)[0]
		if n := swept(t, mine.command.Owner); n != 0 {
			t.Errorf("Sweep killed %d", n)
		}
		for _, pid := range []int{mine.PID(), other} {
			if !alive(pid) {
				t.Errorf("process %d was killed", pid)
			}
		}
		kill(cmd)
		ended(t, other)
		mine.Stop(syscall.SIGKILL, 0)
		io.Copy(io.Discard, mine.Output())
		mine.Wait()
	})
}

func TestSweepNeedsAnOwner(t *testing.T) {
	t.Parallel()
	if n, err := Sweep(t.Context(), ""); n != 0 || err == nil {
		t.Errorf("Sweep of nobody = %d, %v", n, err)
	}
	c := shell("exit 0")
	c.Owner = "a/b"
	if _, err := Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "a/b") {
		t.Errorf("Start with an owner that is no word: %v", err)
	}
}

// A number that was given to another process since is not hit.
func TestStrikeHitsOnlyWhatWasSeen(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`echo; exec sleep 1000`))
	bufio.NewReader(p.Output()).ReadString('\n')
	seen, ok := readStat(p.PID())
	if !ok {
		t.Fatal("no such process")
	}
	other := seen
	other.start--
	if strike(other) || !alive(seen.pid) {
		t.Error("another process of that number was killed")
	}
	if !strike(seen) {
		t.Error("the process that was seen was not killed")
	}
	io.Copy(io.Discard, p.Output())
	p.Wait()
}
