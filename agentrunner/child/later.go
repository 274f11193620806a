package child

import (
	"encoding/json"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StopKept has the supervisor of a Command with Keep end its tree, in a later life of the caller: with signal, then
// with SIGKILL what is left after grace. Zero values mean those of the Command. The supervisor does it by itself, so it
// is also done if the caller dies again. It reports whether there was one to tell: then Kept waits for the outcome. A
// second call may shorten the grace, or change the signal.
func StopKept(path string, signal syscall.Signal, grace time.Duration) bool {
	text, err := json.Marshal(stopWith(signal, grace))
	if err != nil {
		return false
	}
	kept, err := os.Stat(path)
	if err != nil {
		return false
	}
	for _, p := range processes() {
		if p.pid != os.Getpid() && tell(p.pid, kept, append(text, '\n')) {
			return true
		}
	}
	return false
}

// tell writes to the control pipe of a supervisor, which is opened anew through the process that reads it. The
// supervisor of a Keep file is whoever has that file at its number.
func tell(pid int, kept os.FileInfo, text []byte) bool {
	// The names below it are this process's, even if its number is given to another meanwhile.
	dir, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/fd", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	var held unix.Stat_t
	want, ok := kept.Sys().(*syscall.Stat_t)
	if err := unix.Fstatat(dir, strconv.Itoa(keepFD), &held, 0); err != nil || !ok || held.Dev != want.Dev || held.Ino != want.Ino {
		return false
	}
	control, err := unix.Openat(dir, strconv.Itoa(controlFD), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(control)
	if _, err := unix.Write(control, text); err != nil {
		return false
	}
	syscall.Kill(pid, syscall.SIGCONT) // should somebody have stopped it
	return true
}

func stopWith(signal syscall.Signal, grace time.Duration) order {
	o := &stopOrder{Signal: int(signal)}
	if grace > 0 {
		o.GraceMS = max(grace.Milliseconds(), 1)
	}
	return order{Stop: o}
}
