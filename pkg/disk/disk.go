// Package disk does to files what has to survive a crash: replacing one whole, and locking a directory for one
// process. It does not know what is in them.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"chiffon/pkg/cut"
)

// unfinished is how files are named that are being written.
const unfinished = ".new-*"

// Unfinished is the pattern of the files that a crash of Replace may leave in a directory. Whoever holds its lock may
// remove them.
func Unfinished(dir string) string { return filepath.Join(dir, unfinished) }

// Replace writes a file that only its owner may read (0600). A crash leaves the old content or the new one, and the
// new one is on disk when it returns nil.
func Replace(path string, data []byte) error {
	cut.Before("write", path)
	defer cut.After("write", path)
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, unfinished) // made with 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		cut.Before("rename", path)
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		if gone := os.Remove(f.Name()); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return err
	}
	return Sync(dir)
}

// Remove removes a file. One that is not there is removed already.
func Remove(path string) error {
	cut.Before("remove", path)
	defer cut.After("remove", path)
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sync makes what was created, renamed or removed in a directory last.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// A LockedError says that another process has the lock, and which.
type LockedError struct {
	Dir string
	PID string // "" when it could not be read
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s is in use by another process (pid %s)", e.Dir, e.PID)
}

// A Lock on a directory. It goes with the process, or by Release.
type Lock struct{ f *os.File }

// Take locks a directory, which must be there, for this process: it writes its pid to the file "lock" in it. A
// *LockedError comes back when another process has it.
func Take(dir string) (*Lock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		who, _ := os.ReadFile(path)
		_ = f.Close() // the lock is what failed
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Dir: dir, PID: strings.TrimSpace(string(who))}
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	pid := fmt.Appendln(nil, os.Getpid())
	_, err = f.WriteAt(pid, 0) // never empty: somebody may be reading who holds it
	if err = errors.Join(err, f.Truncate(int64(len(pid)))); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return &Lock{f}, nil
}

// Release gives the lock back. Closing the file alone would leave the lock with a process that is just being forked,
// until it has become another program.
func (l *Lock) Release() error {
	return errors.Join(syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN), l.f.Close())
}
