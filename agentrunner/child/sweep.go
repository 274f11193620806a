package child

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Sweep ends what earlier lives of the caller left running, whose supervisors may have been killed as well: every
// process of a Command with this owner, and the control groups of those. It spares what this very process has started,
// and what has a living supervisor that lets its program finish (Survive) and holds one of the given Keep files: of any
// other nobody could learn how it ends. It returns how many processes it killed
// when none is left; an error means that some are, or that ctx ended before. Nothing is killed that does not carry the
// owner's mark, stand in one of its control groups or descend from one of its supervisors.
func Sweep(ctx context.Context, owner string, keeps ...string) (killed int, err error) {
	if owner == "" {
		return 0, errors.New("sweep: no owner: that would be everybody's work")
	}
	s := sweep{owner: owner, killed: map[process]bool{}}
	for _, path := range keeps {
		if f, err := os.Stat(path); err == nil {
			s.keeps = append(s.keeps, f)
		}
	}
	return s.run(ctx)
}

// A sweep ends the runs of an owner.
type sweep struct {
	owner  string
	only   string           // the one run to be ended, and not spared by anything; empty means all
	keeps  []os.FileInfo    // whoever is to write one of these may go on
	killed map[process]bool // by their id
}

func (s *sweep) run(ctx context.Context) (killed int, err error) {
	for pause := killAgain; ; pause = min(2*pause, killSlowly) {
		left := s.pass()
		if len(left) == 0 {
			return len(s.killed), nil
		}
		select {
		case <-ctx.Done():
			return len(s.killed), fmt.Errorf("sweep: %s of an earlier life cannot be ended: %w", strings.Join(left, ", "), context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// pass kills what is there, and lists it: only a pass that finds nothing proves that nothing is left.
func (s *sweep) pass() (left []string) {
	all := processes()
	spared, victims := s.sort(all)
	if s.only != "" {
		victims = append(victims, strays()...)
	}
	for _, path := range s.groups() {
		if spared[filepath.Base(path)[len(groupsOf(s.owner)):]] {
			continue
		}
		in := members(path)
		if slices.Contains(in, os.Getpid()) {
			continue // the caller was started by what it is to end
		}
		for _, pid := range in {
			if p, ok := readStat(pid); ok && !p.ended {
				s.killed[p.id()] = true
			}
		}
		write(path, "cgroup.kill", "1")
		if !removeGroup(path) {
			left = append(left, path)
		}
	}
	for _, p := range victims {
		if strike(p) {
			s.killed[p.id()] = true
		}
		left = append(left, p.String())
	}
	for p := range s.killed {
		// What is about to end has lost its environment already, and may still hold files.
		now, ok := readStat(p.pid)
		if ok && now.id() == p && !now.ended && !slices.Contains(left, p.String()) {
			left = append(left, p.String())
		}
	}
	return left
}

// sort finds the runs that are let go on, and the processes of all others.
func (s *sweep) sort(all []process) (spared map[string]bool, victims []process) {
	spared = map[string]bool{}
	var ours []process
	for _, p := range all {
		m := readMark(p.pid)
		if p.ended || m.owner != s.owner || m.run == "" || s.only != "" && m.run != s.only {
			continue
		}
		switch p.run = m.run; {
		case m.supervisor && s.only == "" && (m.survives && s.isKept(p.pid) || p.parent == os.Getpid()):
			spared[m.run] = true
			syscall.Kill(p.pid, syscall.SIGCONT) // should somebody have stopped it
		case m.supervisor:
			// What stands below a supervisor is known by that alone. It goes first: without it nobody would find them.
			for _, d := range below(all, p.pid) {
				d.run = m.run
				if !d.ended {
					ours = append(ours, d)
				}
			}
			ours = append(ours, p)
		default:
			ours = append(ours, p)
		}
	}
	safe := ancestors(all, os.Getpid())
	for _, p := range ours {
		if !spared[p.run] && !safe[p.pid] && !slices.ContainsFunc(victims, func(v process) bool { return v.pid == p.pid }) {
			victims = append(victims, p)
		}
	}
	return spared, victims
}

// isKept reports whether a supervisor is to write one of the files that somebody will read.
func (s *sweep) isKept(pid int) bool {
	held, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, keepFD))
	return err == nil && slices.ContainsFunc(s.keeps, func(f os.FileInfo) bool { return os.SameFile(f, held) })
}

// groups lists the owner's control groups, wherever an earlier life may have made them.
func (s *sweep) groups() (paths []string) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for _, m := range groupMounts(string(text)) {
		filepath.WalkDir(m.point, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil // what cannot be seen is not ours
			}
			run, ok := strings.CutPrefix(d.Name(), groupsOf(s.owner))
			if !ok || strings.Contains(run, "-") {
				return nil
			}
			if s.only == "" || run == s.only {
				paths = append(paths, path)
			}
			return fs.SkipDir
		})
	}
	return paths
}

// members lists the processes in a control group and in those below it.
func members(path string) (pids []int) {
	filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		for line := range strings.Lines(string(read(path, "cgroup.procs"))) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// strike kills a process if it is still the one that was seen: its number may have been given to another since.
func strike(p process) bool {
	handle, err := os.FindProcess(p.pid) // holds on to the process itself, where the kernel can (5.4)
	if err != nil {
		return false
	}
	defer handle.Release()
	if now, ok := readStat(p.pid); !ok || now.id() != p.id() {
		return false
	}
	return handle.Kill() == nil
}
