package child

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// groupPrefix begins the name of every control group that a supervisor makes.
const groupPrefix = "chiffon-"

// homeName is the control group of a runner that has its service's whole group for itself (DelegateSubgroup= of
// systemd): the groups of its children then stand beside it, where the memory controller can be handed on. A group
// that holds processes itself cannot hand it on.
const homeName = "agentrunner"

// A group is the control group (version 2) that one run's processes cannot leave by forking: the kernel ends all of
// them at once.
type group struct {
	path   string
	dir    *os.File
	memory bool // the kernel holds the limit
}

// ErrNoGroups comes back from Home where no control groups can be made: no cgroup v2, or no permission. Trees are then
// ended by looking for every descendant, and for the mark in their environment.
var ErrNoGroups = errors.New("no control groups can be made here")

// Home is the directory below which the control groups of this process's children are made. The error is ErrNoGroups,
// with the reason.
func Home() (string, error) {
	own, err := ownGroup()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoGroups, err)
	}
	if filepath.Base(own) == homeName && writable(filepath.Dir(own)) {
		own = filepath.Dir(own)
	}
	if !writable(own) {
		return "", fmt.Errorf("%w: %s may not be written to", ErrNoGroups, own)
	}
	return own, nil
}

// ownGroup is where the hierarchy of version 2 shows the control group of this process.
func ownGroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if own, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			for _, m := range groupMounts(string(mounts)) {
				if below, err := filepath.Rel(m.root, own); err == nil && filepath.IsLocal(below) {
					return filepath.Join(m.point, below), nil
				}
			}
			return "", fmt.Errorf("group %s is not mounted", own)
		}
	}
	return "", errors.New("the kernel has no cgroup v2")
}

// A mount shows the hierarchy below root at point.
type mount struct{ root, point string }

// groupMounts finds where cgroup v2 is mounted, in the text of /proc/self/mountinfo: at /sys/fs/cgroup, or beside the
// hierarchies of version 1.
func groupMounts(mountinfo string) (list []mount) {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		_, kind, found := strings.Cut(line, " - ")
		if found && len(f) > 5 && strings.HasPrefix(kind, "cgroup2 ") {
			list = append(list, mount{unescape.Replace(f[3]), unescape.Replace(f[4])})
		}
	}
	return list
}

func writable(dir string) bool {
	const writeAndSearch = 3
	return syscall.Access(dir, writeAndSearch) == nil
}

// newGroup makes the control group of a run; nil where none can be made.
func newGroup(m mark, maxMemory int64) *group {
	home, err := Home()
	if err != nil {
		return nil
	}
	g := &group{path: filepath.Join(home, m.group())}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil
	}
	// Linux 5.14 has cgroup.kill; a group that cannot be killed is worth nothing.
	_, err = os.Stat(filepath.Join(g.path, "cgroup.kill"))
	if err == nil {
		g.dir, err = os.Open(g.path)
	}
	if err != nil {
		os.Remove(g.path)
		return nil
	}
	if maxMemory > 0 {
		g.memory = g.limit(home, maxMemory) == nil
	}
	return g
}

// limit has the kernel hold the memory of the group, where the controller is to be had.
func (g *group) limit(home string, bytes int64) error {
	if _, err := os.Stat(filepath.Join(g.path, "memory.max")); err != nil {
		if err := write(home, "cgroup.subtree_control", "+memory"); err != nil {
			return err
		}
	}
	write(g.path, "memory.swap.max", "0") // there may be no swap
	return errors.Join(write(g.path, "memory.oom.group", "1"), write(g.path, "memory.max", strconv.FormatInt(bytes, 10)))
}

// overUsed is how many bytes the group held when its limit ended it; 0 if that has not happened.
func (g *group) overUsed(limit int64) int64 {
	events := read(g.path, "memory.events")
	// oom counts this limit, oom_kill also what ended for want of memory in the whole host.
	if value(events, "oom") == 0 || value(events, "oom_kill") == 0 {
		return 0
	}
	peak, _ := strconv.ParseInt(string(bytes.TrimSpace(read(g.path, "memory.peak"))), 10, 64)
	return max(peak, limit+1)
}

// kill ends every process of the group and of those below it.
func (g *group) kill() { write(g.path, "cgroup.kill", "1") }

// remove ends what is left in the group and takes the group away, however long that takes, but no longer than wait.
func (g *group) remove(wait time.Duration) {
	defer g.dir.Close()
	for end := sinceBoot() + wait; ; time.Sleep(time.Millisecond) {
		if value(read(g.path, "cgroup.events"), "populated") != 0 {
			g.kill()
		} else if removeGroup(g.path) {
			return
		}
		if sinceBoot() > end {
			return // the next start of the runner tries again
		}
	}
}

// removeGroup removes a group and those that were made below it. It reports whether it is gone.
func removeGroup(path string) bool {
	err := os.Remove(path)
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) {
		entries, _ := os.ReadDir(path)
		for _, e := range entries {
			if e.IsDir() {
				removeGroup(filepath.Join(path, e.Name()))
			}
		}
		err = os.Remove(path)
	}
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// write does not make what is missing: the files of a group are the kernel's.
func write(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func read(dir, name string) []byte {
	text, _ := os.ReadFile(filepath.Join(dir, name))
	return text
}

// value is the number behind a word, in a file with a word and a number in each line.
func value(text []byte, word string) int64 {
	for line := range bytes.Lines(text) {
		if name, number, _ := bytes.Cut(line, []byte(" ")); string(name) == word {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
			return n
		}
	}
	return 0
}
