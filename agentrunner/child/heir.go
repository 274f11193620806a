package child

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// heir keeps apart what this process has started and what has come to it.
var heir struct {
	mu      sync.RWMutex // held for reading while a supervisor is started, for writing while strays are looked for
	on      bool
	started sync.Map // process ids of its supervisors
}

// Inherit makes this process the one to which whatever outlives its supervisor comes. A program may kill its supervisor,
// clear its environment and leave its control group: then it has no mark left to be found by, and this is how it is
// found all the same. Called once, by a program that starts nothing else in a session of its own: what comes to it and
// stands in another session is killed when a supervisor has died.
func Inherit() error {
	heir.mu.Lock()
	defer heir.mu.Unlock()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	heir.on = true
	return nil
}

// launch starts a supervisor.
func (p *Process) launch() error {
	heir.mu.RLock() // or it could be taken for a stray before it is known
	defer heir.mu.RUnlock()
	if err := p.supervisor.Start(); err != nil {
		return err
	}
	heir.started.Store(p.supervisor.Process.Pid, true)
	return nil
}

// bury waits for a supervisor to end.
func (p *Process) bury() {
	p.supervisor.Wait() // how it ended, its ProcessState says
	heir.started.Delete(p.supervisor.Process.Pid)
}

// strays lists what has come to this process from supervisors that died, with all that stands below it.
func strays() (list []process) {
	heir.mu.Lock()
	defer heir.mu.Unlock()
	if !heir.on {
		return nil
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return nil
	}
	all := processes()
	for _, p := range all {
		if _, ours := heir.started.Load(p.pid); ours || p.parent != os.Getpid() || p.session == session {
			continue
		}
		if p.ended {
			syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
			continue
		}
		list = append(list, p)
		for _, d := range below(all, p.pid) {
			if !d.ended {
				list = append(list, d)
			}
		}
	}
	return list
}
