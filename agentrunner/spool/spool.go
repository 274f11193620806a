// Package spool is what a runner keeps on disk across its own death: who it is, which attempts it has in hand, and the
// outcomes that the task log has not taken yet. It knows neither the broker nor the work.
package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"chiffon/pkg/disk"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// ErrInUse comes back from Open when another process works in the directory.
var ErrInUse = errors.New("another agentrunner uses it")

// ErrNewer comes back from Records for a record that a newer version has written: this one may not know what it says.
var ErrNewer = errors.New("it was written by a newer agentrunner")

// version is that of a record.
const version = 1

// stored is a record as it lies on disk. Those of before there were versions have none.
type stored struct {
	Version int `json:"v"`
	Record
}

// A Record is one attempt in hand. It is written before the attempt's started entry, and again before each step that
// a later life has to know of.
type Record struct {
	Task    subject.TaskID
	Attempt int
	Allowed int    // executions allowed
	Boot    uint64 // the life in which it was started
	Entry   string // id of its started entry
	Expect  uint64 // what that entry expects
	Started uint64 `json:",omitempty"` // where that entry stands, once that is known

	WorkType string
	MemoryMB int `json:",omitempty"` // that the request may need
	VRAMMB   int `json:",omitempty"`
	Trace    message.UUID
	Request  message.UUID

	// Begun is set just before the work is: without it, nothing of the work was done.
	Begun   bool      `json:",omitempty"`
	BegunAt time.Time `json:",omitzero"`

	// Outcome is what the log is still to be told, with the very id and expectation that it was or will be sent with.
	Outcome *tasklog.Draft `json:",omitempty"`

	// Stopped says that the work did not end by itself.
	Stopped bool `json:",omitempty"`

	// Late is a status that tells of an outcome which the log does not take any more, encoded; it stands in place of
	// Outcome.
	Late []byte `json:",omitempty"`
}

// A Spool is a state directory in use. Safe for concurrent use on different tasks. Close frees it.
type Spool struct {
	// Boot is the number of this life: greater than that of every earlier one.
	Boot uint64

	// Instance names the state directory, for as long as it exists.
	Instance message.UUID

	dir  string
	lock *disk.Lock
}

// Open takes a state directory for this process, makes it when it is missing, and begins a new life in it. The error
// is ErrInUse while another process has it.
func Open(dir string) (*Spool, error) {
	if err := os.MkdirAll(filepath.Join(dir, "attempts"), 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w (AGENTRUNNER_STATE names another)", err)
	}
	lock, err := take(dir)
	if err != nil {
		return nil, err
	}
	s := &Spool{dir: dir, lock: lock}
	if err := errors.Join(s.sweep(), s.begin()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close lets another process have the directory.
func (s *Spool) Close() error {
	return s.lock.Release()
}

// Put writes a record in place of the task's earlier one; it is on disk when Put returns.
func (s *Spool) Put(r Record) error {
	text, err := json.Marshal(stored{version, r})
	if err == nil {
		err = disk.Replace(s.path(r.Task), text)
	}
	if err != nil {
		return fmt.Errorf("keep attempt %d of task %s: %w", r.Attempt, r.Task, err)
	}
	return nil
}

// tryBytes is what Try writes: more than the record of a start, which is what cannot be written on a full disk. Not much
// more: a small disk must be able to recover.
const tryBytes = 8 << 10

// Try writes as much as the record of a start, and removes it: nil says that Put would do.
func (s *Spool) Try() error {
	path := filepath.Join(s.dir, "attempts", "try")
	if err := disk.Replace(path, make([]byte, tryBytes)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Remove(path)
}

// Keep is a file in which the outcome of a task's work is kept when its runner dies. It goes with the record.
func (s *Spool) Keep(id subject.TaskID) string {
	return filepath.Join(s.dir, "attempts", string(id)+".kept")
}

// Keeps lists those files.
func (s *Spool) Keeps() []string {
	all, err := filepath.Glob(filepath.Join(s.dir, "attempts", "*.kept"))
	if err != nil {
		return nil // the pattern is none, which it is
	}
	return all
}

// Remove forgets a task. That is done once the log has its outcome; a crash before only repeats what is harmless.
func (s *Spool) Remove(id subject.TaskID) error {
	for _, path := range []string{s.path(id), s.Keep(id)} { // the record first: what it speaks of must be there
		if err := disk.Remove(path); err != nil {
			return fmt.Errorf("forget task %s: %w", id, err)
		}
	}
	return nil
}

// Records lists what is kept. Records that cannot be read are left where they are and named by the error; the others
// come back all the same.
func (s *Spool) Records() ([]Record, error) {
	names, err := filepath.Glob(filepath.Join(s.dir, "attempts", "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Record
	var bad error
	for _, name := range names {
		var r stored
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err == nil && r.Version > version {
			err = fmt.Errorf("%w (record version %d, this one knows %d)", ErrNewer, r.Version, version)
		}
		if err != nil {
			bad = errors.Join(bad, fmt.Errorf("record %s: %w", name, err))
			continue
		}
		all = append(all, r.Record)
	}
	return all, bad
}

func (s *Spool) path(id subject.TaskID) string {
	return filepath.Join(s.dir, "attempts", string(id)+".json")
}

// sweep removes what a crash has left that no record speaks of: files that were just being written, and outcomes of
// work whose record is gone already.
func (s *Spool) sweep() error {
	attempts := filepath.Join(s.dir, "attempts")
	var all []string
	for _, pattern := range []string{disk.Unfinished(s.dir), disk.Unfinished(attempts), filepath.Join(attempts, "*.kept")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
		all = append(all, found...)
	}
	for _, path := range all {
		if id, kept := strings.CutSuffix(path, ".kept"); kept {
			if _, err := os.Stat(id + ".json"); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		if err := disk.Remove(path); err != nil {
			return fmt.Errorf("state directory: %w", err)
		}
	}
	return nil
}

// begin reads the number of the last life and writes that of this one. It is at least the time in nanoseconds, so that
// a lost directory does not bring an old number back.
func (s *Spool) begin() error {
	path := filepath.Join(s.dir, "boot")
	last, err := number(path)
	if err != nil {
		return err
	}
	s.Boot = max(last+1, uint64(time.Now().UnixNano()))
	if err := disk.Replace(path, fmt.Appendln(nil, s.Boot)); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	path = filepath.Join(s.dir, "instance")
	text, err := os.ReadFile(path)
	if err == nil {
		s.Instance, err = message.ParseUUID(strings.TrimSpace(string(text)))
	}
	if err == nil {
		return nil
	}
	s.Instance = message.NewUUID()
	if err := disk.Replace(path, fmt.Appendln(nil, s.Instance)); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	return nil
}

func number(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("state directory: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("state directory: %s holds no number; if it is damaged, remove that file", path)
	}
	return n, nil
}

// take locks the directory; the lock goes with the process.
func take(dir string) (*disk.Lock, error) {
	l, err := disk.Take(dir)
	if locked, ok := errors.AsType[*disk.LockedError](err); ok {
		return nil, fmt.Errorf("state directory %s: %w (pid %s): stop it, or give this one an AGENTRUNNER_STATE and an AGENTRUNNER_ID of its own",
			dir, ErrInUse, locked.PID)
	}
	if err != nil {
		return nil, fmt.Errorf("state directory: %w (AGENTRUNNER_STATE names another)", err)
	}
	return l, nil
}
