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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "runner" {
		playRunner(os.Args[2])
	}
	os.Exit(m.Run())
}

var env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}

func shell(script string, args ...string) Command {
	return Command{Path: "sh", Args: append([]string{"-c", script, "sh"}, args...), Env: env}
}

func start(t *testing.T, c Command) *Process {
	t.Helper()
	p, err := Start(t.Context(), c)
	if err != nil {
		t.Fatalf("Start(%s): %v", c.Path, err)
	}
	return p
}

// whole runs a command to its end.
func whole(t *testing.T, c Command) (string, Outcome) {
	t.Helper()
	p := start(t, c)
	return rest(t, p), p.Wait()
}

func rest(t *testing.T, p *Process) string {
	t.Helper()
	out, err := io.ReadAll(p.Output())
	if err != nil {
		t.Fatalf("read output: %v", err)
	}
	return string(out)
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "text", 0o600)
	cases := map[string]struct {
		command Command
		output  string
		code    int
		signal  string
		err     string // part of it
	}{
		"success":                {command: shell("echo out; echo err >&2; echo out"), output: "out\nerr\nout\n"},
		"failure":                {command: shell("exit 7"), code: 7},
		"killed":                 {command: shell("kill -9 $$"), code: 137, signal: "SIGKILL"},
		"terminated":             {command: shell("kill -TERM $$"), code: 143, signal: "SIGTERM"},
		"missing":                {command: Command{Path: "no-such-program", Env: env}, code: 127, err: "no-such-program was not found in /usr/local/bin"},
		"missing path":           {command: Command{Path: dir + "/none", Env: env}, code: 127, err: dir + "/none does not exist"},
		"not executable":         {command: Command{Path: plain, Env: env}, code: 126, err: "chmod +x"},
		"not executable in PATH": {command: Command{Path: "plain", Env: []string{"PATH=" + dir}}, code: 126, err: plain},
		"a directory":            {command: Command{Path: dir, Env: env}, code: 126, err: "is a directory"},
		"no program":             {command: Command{Path: write("odd", "\x01\x02", 0o700), Env: env}, code: 126, err: "no program for this system"},
		"interpreter missing":    {command: Command{Path: write("lost", "#!/no/such/sh\n", 0o700), Env: env}, code: 127, err: "interpreter"},
		"directory missing":      {command: Command{Path: "sh", Dir: dir + "/none", Env: env}, code: 126, err: "working directory"},
		"stdin":                  {command: Command{Path: "cat", Env: env, Stdin: []byte("hello")}, output: "hello"},
		"no stdin":               {command: Command{Path: "cat", Env: env}},
		"arguments stay whole":   {command: shell(`printf '<%s>' "$@"`, "a b", "", "$HOME;*"), output: "<a b><><$HOME;*>"},
		"environment is given":   {command: Command{Path: "env", Args: []string{"-u", markName}, Env: append(env, "A=b")}, output: env[0] + "\nA=b\n"},
		"directory":              {command: Command{Path: "pwd", Dir: dir, Env: env}, output: dir + "\n"},
		"relative to directory":  {command: Command{Path: "./x", Dir: filepath.Dir(write("x", "#!/bin/sh\necho x\n", 0o700)), Env: env}, output: "x\n"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, got := whole(t, c.command)
			if out != c.output || got.ExitCode != c.code || got.Signal != c.signal || !strings.Contains(got.Err, c.err) || (c.err == "") != (got.Err == "") {
				t.Errorf("%v %q = %q, %+v; want %q, exit code %d, signal %q, err with %q", c.command.Path, c.command.Args, out, got, c.output, c.code, c.signal, c.err)
			}
			if got.Stopped {
				t.Errorf("%+v: nobody stopped it", got)
			}
		})
	}
}

func TestLargeOutputArrivesWhole(t *testing.T) {
	t.Parallel()
	out, end := whole(t, shell("head -c 3000000 /dev/zero | tr '\\0' x"))
	if len(out) != 3000000 || end.ExitCode != 0 {
		t.Errorf("%d bytes, %+v", len(out), end)
	}
}

// A process that leaves its parents, its group and its session, and wants to hear nothing of SIGTERM.
const runaway = `setsid sh -c 'trap "" TERM HUP; echo $$; while :; do sleep 1; done' & `

// pids reads n process ids that a script prints.
func pids(t *testing.T, r *bufio.Reader, n int) (list []int) {
	t.Helper()
	for range n {
		text, err := r.ReadString('\n')
		pid, convErr := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || convErr != nil {
			t.Fatalf("read process id: %q, %v", text, err)
		}
		list = append(list, pid)
	}
	return list
}

func alive(pid int) bool {
	p, ok := readStat(pid)
	return ok && !p.ended
}

func TestStopEndsWholeTree(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`(`+runaway+`) ; `+`echo $$; while :; do sleep 1; done`))
	out := bufio.NewReader(p.Output())
	tree := pids(t, out, 2)
	p.Stop(syscall.SIGTERM, 50*time.Millisecond)
	io.Copy(io.Discard, out)
	end := p.Wait()
	if !end.Stopped || end.ExitCode != 143 || end.Signal != "SIGTERM" {
		t.Errorf("outcome %+v, want stopped by SIGTERM", end)
	}
	for _, pid := range tree {
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
	p.Stop(0, 0) // after the end: nothing
}

func TestStopKillsWhatIgnoresTheSignal(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`trap "" INT; echo $$; while :; do sleep 1; done`))
	out := bufio.NewReader(p.Output())
	pids(t, out, 1)
	p.Stop(syscall.SIGINT, 20*time.Millisecond)
	io.Copy(io.Discard, out)
	if end := p.Wait(); !end.Stopped || end.ExitCode != 137 {
		t.Errorf("outcome %+v, want killed", end)
	}
}

func TestStopLetsTheProgramTidyUp(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`trap 'echo tidy; exit 3' INT; echo $$; while :; do sleep 0.05; done`))
	out := bufio.NewReader(p.Output())
	pids(t, out, 1)
	p.Stop(syscall.SIGINT, time.Minute)
	text, _ := io.ReadAll(out)
	if end := p.Wait(); !end.Stopped || end.ExitCode != 3 || string(text) != "tidy\n" {
		t.Errorf("output %q, outcome %+v", text, end)
	}
}

// chain is a program of which each process lives only to start the next one, in a session of its own.
func chain(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chain")
	if err := os.WriteFile(path, []byte("#!/bin/sh\ntest -e \"$0\" && setsid sh \"$0\" &\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStopEndsAChainOfShortLives(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		c := way(owned(shell(`sh "$1"; echo $$; while :; do sleep 1; done`, chain(t))))
		p := start(t, c)
		out := bufio.NewReader(p.Output())
		pids(t, out, 1)
		p.Stop(syscall.SIGTERM, 10*time.Millisecond)
		io.Copy(io.Discard, out)
		if end := p.Wait(); !end.Stopped || end.ExitCode != 143 {
			t.Errorf("outcome %+v", end)
		}
		if left := markedBy(c.Owner); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
	})
}

// markedBy lists the processes of an owner.
func markedBy(owner string) (pids []int) {
	for _, p := range processes() {
		if readMark(p.pid).owner == owner {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

func TestLeftoversEnd(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`sleep 1000 & echo $!; setsid sleep 1000 & echo $!; exit 5`))
	out := bufio.NewReader(p.Output())
	tree := pids(t, out, 2)
	io.Copy(io.Discard, out)
	if end := p.Wait(); end.ExitCode != 5 || end.Stopped {
		t.Errorf("outcome %+v, want its own exit code 5", end)
	}
	for _, pid := range tree {
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func TestOutputEndsThoughAStrangerHoldsThePipe(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`echo $$; read x < /dev/null; sleep 1000`))
	out := bufio.NewReader(p.Output())
	pid := pids(t, out, 1)[0]
	stranger, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	fmt.Fprint(stranger, "last words")
	p.Stop(syscall.SIGKILL, 0)
	p.Wait()
	if text, err := io.ReadAll(out); string(text) != "last words" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
}

func TestCPUOfOrphansCounts(t *testing.T) {
	t.Parallel()
	// The orphan has left before its parent ends, works, and then lets the program go on.
	_, end := whole(t, shell(`cd "$1"; mkfifo done; (setsid sh -c 'i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; echo > done' &); read x < done`, t.TempDir()))
	if end.ExitCode != 0 || end.CPU < 30*time.Millisecond {
		t.Errorf("outcome %+v, want more processor time", end)
	}
	if end.MaxRSS < 100<<10 {
		t.Errorf("max rss %d bytes", end.MaxRSS)
	}
}

func TestDeadlineKillsTheTree(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`trap "" TERM; `+runaway+`echo $$; while :; do sleep 1; done`))
	out := bufio.NewReader(p.Output())
	tree := pids(t, out, 2)
	p.Deadline(time.Hour)
	p.Deadline(30 * time.Millisecond)
	io.Copy(io.Discard, out)
	if end := p.Wait(); !end.Expired || !end.Stopped || end.ExitCode != 137 {
		t.Errorf("outcome %+v, want expired", end)
	}
	for _, pid := range tree {
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	c := shell(`x=$(head -c 60000000 /dev/zero | tr '\0' x); sleep 1000`)
	c.MaxMemory = 40 << 20
	if _, end := whole(t, c); end.OverUsed <= c.MaxMemory || !end.Stopped {
		t.Errorf("outcome %+v, want ended for its memory", end)
	}
}

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
	cmd.Process.Kill()
	cmd.Wait()
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
	cmd.Process.Kill()
	cmd.Wait()
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

// What is stopped while it starts does not go on, also not when it would outlive its caller.
func TestStoppedWhileItStarts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		c := shell("echo $$ > pid; echo here; exec sleep 4321")
		c.Dir, c.Survive = t.TempDir(), true
		p, err := Start(ctx, c)
		if err == nil { // it was faster
			p.Stop(syscall.SIGKILL, time.Millisecond)
			io.Copy(io.Discard, p.Output())
			p.Wait()
			continue
		}
		text, err := os.ReadFile(filepath.Join(c.Dir, "pid"))
		if err != nil || len(text) == 0 {
			continue // it had not begun
		}
		line, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/cmdline")
		if err == nil && strings.Contains(string(line), "4321") {
			t.Fatalf("process %s goes on", text)
		}
	}
}
