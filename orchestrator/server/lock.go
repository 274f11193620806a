package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lock takes a state directory for this process alone. The returned function lets go of it, and so does the end of the
// process. The broker's store has a lock of its own; this one also keeps two from sharing a credential.
func lock(state string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(state, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w: choose another with ORCHESTRATOR_STATE", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another orchestrator uses it; stop that one, or choose another with ORCHESTRATOR_STATE")
		}
		return nil, errors.Join(fmt.Errorf("state directory %s: %w", state, err), f.Close())
	}
	return func() { _ = f.Close() }, nil // nothing was written
}
