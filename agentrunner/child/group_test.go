package child

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func home(t *testing.T) string {
	t.Helper()
	dir, err := Home()
	if err != nil {
		t.Skip(err)
	}
	return dir
}

func TestGroupIsFoundWhereItIsMounted(t *testing.T) {
	t.Parallel()
	const v1 = "33 23 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
	cases := map[string]struct {
		mountinfo string
		want      []mount
	}{
		"alone":                   {"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", []mount{{"/", "/sys/fs/cgroup"}}},
		"beside version 1":        {v1 + "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n", []mount{{"/", "/sys/fs/cgroup/unified"}}},
		"a part of it":            {"30 23 0:26 /docker/ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n", []mount{{"/docker/ab", "/sys/fs/cgroup"}}},
		"a path with a space":     {`30 23 0:26 / /mnt/a\040b rw - cgroup2 none rw` + "\n", []mount{{"/", "/mnt/a b"}}},
		"version 1 alone":         {v1, nil},
		"named like it elsewhere": {"50 23 0:30 / /srv/cgroup2 rw - ext4 /dev/sda1 rw\n", nil},
	}
	for name, c := range cases {
		if got := groupMounts(c.mountinfo); !slices.Equal(got, c.want) {
			t.Errorf("%s: groupMounts(%q) = %q, want %q", name, c.mountinfo, got, c.want)
		}
	}
}

func TestProgramStartsInItsGroupAndSupervisorOutside(t *testing.T) {
	t.Parallel()
	dir := home(t)
	p := start(t, owned(shell(`cat /proc/self/cgroup; setsid cat /proc/self/cgroup; cat /proc/$PPID/cgroup; read x < /dev/null; exec sleep 1000`)))
	var lines []string
	for r := bufio.NewReader(p.Output()); len(lines) < 3; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if place, ok := strings.CutPrefix(line, "0::"); ok {
			lines = append(lines, filepath.Base(strings.TrimSpace(place)))
		}
	}
	group := p.mark.group()
	if lines[0] != group || lines[1] != group || lines[2] == group {
		t.Errorf("program in %q, its child in %q, supervisor in %q; want the first two in %q", lines[0], lines[1], lines[2], group)
	}
	if got := members(filepath.Join(dir, group)); !slices.Contains(got, p.PID()) {
		t.Errorf("group %s has the processes %v, want %d among them", group, got, p.PID())
	}
	p.Stop(syscall.SIGKILL, 0)
	io.Copy(io.Discard, p.Output())
	p.Wait()
	if left := groupsLeft(t, p.mark); len(left) > 0 {
		t.Errorf("groups %q are left", left)
	}
}

func TestProgramThatMovesToAnotherGroupIsKilled(t *testing.T) {
	t.Parallel()
	dir := home(t)
	p := start(t, shell(`echo $$ > "$1/cgroup.procs"; `+runaway+`echo $$; trap "" TERM; while :; do sleep 1; done`, dir))
	tree := pids(t, bufio.NewReader(p.Output()), 2)
	if in := members(filepath.Join(dir, p.mark.group())); len(in) > 0 {
		t.Fatalf("processes %v have not moved", in)
	}
	p.Stop(syscall.SIGTERM, 10*time.Millisecond)
	io.Copy(io.Discard, p.Output())
	p.Wait()
	for _, pid := range tree {
		if alive(pid) {
			t.Errorf("process %d still runs", pid)
		}
	}
}

func TestGroupsBelowItsOwnAreRemoved(t *testing.T) {
	t.Parallel()
	dir := home(t)
	p := start(t, shell(`g="$1/$(sed -n 's|^0::.*/||p' /proc/self/cgroup)"; mkdir -p "$g/a/b" && echo $$ > "$g/a/b/cgroup.procs"; `+runaway+`echo $$; exec sleep 1000`, dir))
	tree := pids(t, bufio.NewReader(p.Output()), 2)
	if in := members(filepath.Join(dir, p.mark.group(), "a")); len(in) < 2 {
		t.Fatalf("%v in the group below", in)
	}
	p.Stop(syscall.SIGKILL, 0)
	io.Copy(io.Discard, p.Output())
	p.Wait()
	if left := groupsLeft(t, p.mark); len(left) > 0 || alive(tree[0]) || alive(tree[1]) {
		t.Errorf("groups %q, processes %v are left", left, tree)
	}
}

// The stopped processes see no signal, and SIGKILL all the same.
func TestStoppedTreeIsKilled(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, way func(Command) Command) {
		p := start(t, way(shell(runaway+`echo $$; trap "" TERM; while :; do sleep 1; done`)))
		tree := pids(t, bufio.NewReader(p.Output()), 2)
		for _, pid := range append(tree, p.supervisor.Process.Pid) {
			syscall.Kill(pid, syscall.SIGSTOP)
		}
		p.Stop(syscall.SIGTERM, 10*time.Millisecond)
		io.Copy(io.Discard, p.Output())
		p.Wait()
		for _, pid := range tree {
			if alive(pid) {
				t.Errorf("process %d still runs", pid)
			}
		}
	})
}

func TestKernelHoldsTheMemoryLimit(t *testing.T) {
	t.Parallel()
	dir := home(t)
	if text := read(dir, "cgroup.controllers"); !slices.Contains(strings.Fields(string(text)), "memory") {
		t.Skipf("%s has no memory controller (it has: %q); TestMemoryLimit tests what holds the limit instead", dir, text)
	}
	c := shell(`x=$(head -c 60000000 /dev/zero | tr '\0' x); sleep 1000`)
	c.MaxMemory = 40 << 20
	p := start(t, c)
	limit := read(filepath.Join(dir, p.mark.group()), "memory.max")
	rest(t, p)
	end := p.Wait()
	if string(limit) != strconv.FormatInt(c.MaxMemory, 10)+"\n" {
		t.Skipf("%s does not hand its memory controller on: there are processes in it", dir)
	}
	if end.OverUsed <= c.MaxMemory || end.MaxMemory != c.MaxMemory || !end.Stopped {
		t.Errorf("outcome %+v, want ended for its memory", end)
	}
}

func TestValueReadsTheFilesOfAGroup(t *testing.T) {
	t.Parallel()
	const events = "low 0\nhigh 2\nmax 17\noom 1\noom_kill 3\noom_group_kill 1\n"
	for word, want := range map[string]int64{"oom": 1, "oom_kill": 3, "low": 0, "oom_": 0, "none": 0} {
		if got := value([]byte(events), word); got != want {
			t.Errorf("value of %s = %d, want %d", word, got, want)
		}
	}
}

// Not parallel: it counts what the whole process holds.
func TestNothingIsLeftOfAnAttempt(t *testing.T) {
	for _, noGroup := range []bool{false, true} {
		c := owned(shell(runaway + `echo $$; exec sleep 1000`))
		c.noGroup = noGroup
		before, children := files(t), len(descendants(os.Getpid()))
		for range 5 {
			p := start(t, c)
			pids(t, bufio.NewReader(p.Output()), 2)
			p.Stop(syscall.SIGKILL, 0)
			io.Copy(io.Discard, p.Output())
			p.Wait()
		}
		if after := files(t); after > before {
			t.Errorf("without group %t: %d files before, %d after 5 attempts", noGroup, before, after)
		}
		if after := len(descendants(os.Getpid())); after > children {
			t.Errorf("without group %t: %d children before, %d after 5 attempts", noGroup, children, after)
		}
		if left := groupsLeft(t, mark{owner: c.Owner}); len(left) > 0 {
			t.Errorf("groups %q are left", left)
		}
	}
}

func files(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return len(names)
}
