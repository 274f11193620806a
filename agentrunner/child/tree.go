package child

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// A process as /proc shows it.
type process struct {
	pid, parent, group, session int
	start                       int64  // clock ticks after the machine's start; with pid it names the process for ever
	resident                    int64  // bytes
	stopped                     bool   // by a signal, or by whoever traces it
	ended                       bool   // only its parent has not asked for its exit code yet
	run                         string // that it belongs to, if that is known
}

// id is what never changes of a process, and no other has.
func (p process) id() process { return process{pid: p.pid, start: p.start} }

func (p process) String() string { return "process " + strconv.Itoa(p.pid) }

// descendants lists what stands below a process, parents before their children. What had left before its parent ended
// has come to the nearest subreaper, so below a supervisor nothing is missed.
func descendants(root int) []process { return below(processes(), root) }

// processes lists all there are.
func processes() (all []process) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := readStat(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// below lists the descendants of root among all.
func below(all []process, root int) []process {
	children := make(map[int][]process)
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	list := children[root]
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i].pid]...)
	}
	return list
}

// ancestors are a process and those above it.
func ancestors(all []process, pid int) map[int]bool {
	parents := make(map[int]int)
	for _, p := range all {
		parents[p.pid] = p.parent
	}
	chain := map[int]bool{}
	for ; pid > 0 && !chain[pid]; pid = parents[pid] {
		chain[pid] = true
	}
	return chain
}

func readStat(pid int) (p process, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false // it has just ended
	}
	// The name in parentheses may hold anything, also spaces and parentheses.
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 22 {
		return process{}, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(string(f[i])); return n }
	return process{
		pid: pid, parent: number(1), group: number(2), session: number(3), stopped: f[0][0] == 'T' || f[0][0] == 't', ended: f[0][0] == 'Z' || f[0][0] == 'X',
		start: int64(number(19)), resident: int64(number(21)) * int64(os.Getpagesize()),
	}, true
}

// signalTree sends a signal to every process of a tree once: to the group of the program in one call, to what has left
// that group one by one. Some programs take a second signal as the order to drop everything.
func signalTree(root, group int, signal syscall.Signal) {
	syscall.Kill(-group, signal)
	outside := descendants(root)
	for _, d := range outside {
		if d.group != group {
			syscall.Kill(d.pid, signal)
		}
	}
	// A process that is stopped would not see the signal.
	syscall.Kill(-group, syscall.SIGCONT)
	for _, d := range outside {
		if d.group != group {
			syscall.Kill(d.pid, syscall.SIGCONT)
		}
	}
}

// killTree kills every process of a tree, and looks again as long as it finds new ones: what is about to die may just
// have started another.
func killTree(root, group int) {
	syscall.Kill(-group, syscall.SIGKILL)
	killed := map[int]bool{}
	for range 100 {
		found := false
		for _, d := range descendants(root) {
			syscall.Kill(d.pid, syscall.SIGKILL)
			found = found || !killed[d.pid]
			killed[d.pid] = true
		}
		if !found {
			return
		}
	}
}

// residentTree is how many bytes of memory the tree below root holds.
func residentTree(root int) (sum int64) {
	for _, d := range descendants(root) {
		sum += d.resident
	}
	return sum
}
