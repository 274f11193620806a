package child

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
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

func TestStopAgainNeverPutsTheKillOff(t *testing.T) {
	t.Parallel()
	p := start(t, shell(`trap "" INT TERM; echo $$; while :; do sleep 1; done`))
	out := bufio.NewReader(p.Output())
	pids(t, out, 1)
	p.Stop(syscall.SIGINT, 100*time.Millisecond)
	p.Stop(syscall.SIGTERM, time.Hour)
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
