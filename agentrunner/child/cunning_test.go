package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The program runs as the same user as its supervisor: it may kill it, stop it and speak in its name.

func gone(t *testing.T, tree []int) {
	t.Helper()
	for _, pid := range tree {
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func TestSupervisorKilledEndsWhatHidesFromTheSweep(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		leave := ""
		if home, err := Home(); err == nil {
			leave = fmt.Sprintf(`echo 0 > %q/cgroup.procs; `, home)
		}
		script := leave + `setsid env -i ` + env[0] + ` sh -c 'trap "" TERM; echo $$; while :; do sleep 1; done' & echo $$; exec sleep 1000`
		cmd, out := runner(t, way(owned(shell(script))))
		tree := pids(t, out, 2)
		syscall.Kill(supervisorOf(t, cmd), syscall.SIGKILL)
		cmd.Wait() // it ends when nothing is left
		if code := cmd.ProcessState.ExitCode(); code != 137 {
			t.Errorf("exit code %d", code)
		}
		gone(t, tree)
	})
}

// With the pipe still held open by somebody, and an end in it that nobody should believe.
func TestNewsOfAKilledSupervisorIsNotBelieved(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		script := `exec 9>/proc/$PPID/fd/4; ` + runaway + `until [ -e "$1" ]; do sleep 0.01; done; echo '{"Outcome":{"exit_code":0}}' >&9; kill -9 $PPID; exec sleep 1000`
		told := filepath.Join(t.TempDir(), "told")
		p := start(t, way(shell(script, told)))
		out := bufio.NewReader(p.Output())
		tree := pids(t, out, 1)
		if err := os.WriteFile(told, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, out)
		if end := p.Wait(); end.ExitCode != 137 {
			t.Errorf("outcome %+v", end)
		}
		gone(t, tree)
		if left := groupsLeft(t, p.mark); len(left) > 0 {
			t.Errorf("groups %q are left", left)
		}
	})
}

func TestSupervisorThatIsKeptFromItsWork(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		script := runaway + `echo $$; until [ -e "$1" ]; do sleep 0.01; done; while :; do kill -STOP $PPID; done`
		cases := map[string]struct {
			command func(*Command)
			end     func(*Process)
			want    Outcome
		}{
			"of a tree that is stopped":     {end: func(p *Process) { p.Stop(syscall.SIGCONT, time.Second) }, want: Outcome{Stopped: true}},
			"of a tree past its deadline":   {end: func(p *Process) { p.Deadline(time.Second) }, want: Outcome{Stopped: true, Expired: true}},
			"of a tree that takes too long": {command: func(c *Command) { c.MaxTime, c.Grace = time.Second, time.Millisecond }, end: func(*Process) {}, want: Outcome{Stopped: true, OverTime: time.Second}},
		}
		for name, test := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				told := filepath.Join(t.TempDir(), "told")
				c := way(shell(script, told))
				c.Grace = time.Minute
				if test.command != nil {
					test.command(&c)
				}
				p := start(t, c)
				out := bufio.NewReader(p.Output())
				tree := pids(t, out, 2)
				test.end(p)
				if err := os.WriteFile(told, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, out)
				end := p.Wait()
				if end.Stopped != test.want.Stopped || end.Expired != test.want.Expired || end.OverTime != test.want.OverTime {
					t.Errorf("outcome %+v, want %+v", end, test.want)
				}
				gone(t, tree)
			})
		}
	})
}

// Nobody could learn how it ends, so the next life ends it.
func TestSweepEndsWhatHasLostItsKeepFile(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(string) error{
		"removed":  os.Remove,
		"replaced": func(path string) error { return os.Rename(path+".other", path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, way func(Command) Command) {
				c := way(owned(shell(runaway + `echo $$; exec sleep 1000`)))
				c.Survive, c.Keep = true, filepath.Join(t.TempDir(), "kept")
				if err := os.WriteFile(c.Keep+".other", nil, 0o600); err != nil {
					t.Fatal(err)
				}
				cmd, out := runner(t, c)
				tree := append(pids(t, out, 2), supervisorOf(t, cmd))
				if err := spoil(c.Keep); err != nil {
					t.Fatal(err)
				}
				kill(cmd)
				swept(t, c.Owner, c.Keep)
				gone(t, tree)
			})
		})
	}
}
