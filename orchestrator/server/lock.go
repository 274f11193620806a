package server

import (
	"errors"
	"fmt"

	"chiffon/pkg/disk"
)

// lock takes a state directory for this process alone. The returned function lets go of it, and so does the end of the
// process. The broker's store has a lock of its own; this one also keeps two from sharing a credential.
func lock(state string) (release func(), err error) {
	l, err := disk.Take(state)
	if locked, ok := errors.AsType[*disk.LockedError](err); ok {
		return nil, fmt.Errorf("state directory %s: another orchestrator uses it (pid %s); stop that one, or choose another with ORCHESTRATOR_STATE", state, locked.PID)
	}
	if err != nil {
		return nil, fmt.Errorf("state directory: %w: choose another with ORCHESTRATOR_STATE", err)
	}
	return func() { _ = l.Release() }, nil // nothing was written
}
