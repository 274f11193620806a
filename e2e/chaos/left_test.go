//go:build chaos

package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// What a program at rest may hold at most: more than that grows with the work it has done.
const (
	maxFiles      = 80
	maxGoroutines = 200
)

// endAll asks everybody to stop, and makes sure that nothing is left; with work still about, something may be.
func (s *site) endAll(settled bool) {
	s.files()
	for _, group := range [][]*process{s.runners, s.orchestrators, {s.broker}} {
		var wg sync.WaitGroup
		for i, p := range group {
			wg.Go(func() {
				if i > 0 {
					p.stop(syscall.SIGTERM)
					return
				}
				// The first one tells what it is about in place of ending well.
				p.stop(syscall.SIGQUIT)
				s.goroutines(p)
			})
		}
		wg.Wait()
	}
	for _, p := range s.relays {
		p.stop(syscall.SIGKILL)
	}
	var pids []int
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); pause(context.Background(), 50*time.Millisecond) {
		if pids = s.left(); len(pids) == 0 {
			break
		}
	}
	if !settled {
		return
	}
	for _, pid := range pids {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		s.wrong("process %d is left: %s", pid, strings.ReplaceAll(string(cmdline), "\x00", " "))
	}
	for _, name := range s.groups() {
		s.wrong("control group %s is left", name)
	}
	for i := range s.runners {
		for _, place := range []string{"attempts", "work"} {
			left, _ := os.ReadDir(filepath.Join(s.dir, agent(i), place))
			for _, e := range left {
				s.wrong("%s keeps %s/%s", agent(i), place, e.Name())
			}
		}
	}
}

// files counts what the programs have opened.
func (s *site) files() {
	for _, p := range slices.Concat(s.runners, s.orchestrators) {
		open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid()))
		if len(open) > maxFiles {
			s.wrong("%s has %d files open", p.name, len(open))
		}
	}
}

// goroutines counts them in what a program told last.
func (s *site) goroutines(p *process) {
	f, err := os.Open(p.log)
	if err != nil {
		s.wrong("%v", err)
		return
	}
	defer f.Close()
	n := 0
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "goroutine ") {
			n++
		}
	}
	s.note("%s has %d goroutines", p.name, n)
	if n > maxGoroutines && p != s.broker {
		s.wrong("%s has %d goroutines", p.name, n)
	}
}

// newGroup makes a control group for all that is started, so that what runners leave below it is seen; "" where that is
// not allowed.
func (s *site) newGroup() string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for mount := range strings.Lines(string(mounts)) {
		words := strings.Fields(mount)
		if len(words) < 5 || !strings.Contains(mount, " - cgroup2 ") {
			continue
		}
		path := filepath.Join(words[4], fmt.Sprintf("chaos-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(path, 0o755) == nil {
			return path
		}
	}
	s.Log("left out: control groups (version 2 is not mounted, or may not be written to)")
	return ""
}

// groups lists the control groups below our own.
func (s *site) groups() (names []string) {
	if s.group == "" {
		return nil
	}
	_ = filepath.WalkDir(s.group, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && path != s.group {
			names = append(names, path)
		}
		return nil
	})
	return names
}

func (s *site) removeGroup() {
	for _, path := range slices.Backward(append([]string{s.group}, s.groups()...)) {
		if path != "" {
			_ = os.Remove(path) // the kernel keeps one that somebody is in
		}
	}
}
