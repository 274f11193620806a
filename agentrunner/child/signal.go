package child

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// SignalKept sends a signal to every process of the tree of a Command with Keep, in a later life of the caller. It
// reports whether there is such a tree: its supervisor is whoever holds the file at path.
func SignalKept(path string, which syscall.Signal) bool {
	kept, err := os.Stat(path)
	if err != nil {
		return false
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return false
	}
	found := false
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		held, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, keepFD))
		if err != nil || !os.SameFile(kept, held) {
			continue
		}
		for _, d := range descendants(pid) {
			found = true
			syscall.Kill(d.pid, which)
		}
	}
	return found
}
