package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// KeptOutput is how many bytes of the output a Keep file holds at most: the last ones since the caller died.
const KeptOutput = 256 << 10

// ErrNotKept comes back from Kept when the supervisor was ended before it could write an outcome: nobody knows it; or when
// a newer version has written what this one cannot read. It does not come back while there is a supervisor.
var ErrNotKept = errors.New("no outcome was kept")

// keptVersion is that of a Keep file. It is written by a supervisor, which may be of another version than the runner
// that reads it.
const keptVersion = 1

// A Survivor is what became of a Command with Keep whose caller died.
type Survivor struct {
	Outcome Outcome
	Output  []byte // the last that came after the caller had died
	Lost    int64  // bytes that came before those, after the caller had died too
}

// kept is a Survivor as it lies on disk.
type kept struct {
	Version int `json:"v"`
	Survivor
}

// Kept reads the outcome of a Command with Keep in a later life of the caller, with the output that came after the
// caller had died. While the program still runs it waits, until ctx ends.
func Kept(ctx context.Context, path string) (Survivor, error) {
	f, err := os.Open(path)
	if err != nil {
		return Survivor{}, err
	}
	defer f.Close()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
			tick.Stop()
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return Survivor{}, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return Survivor{}, context.Cause(ctx)
		case <-tick.C:
		}
	}
	var k kept
	if err := json.NewDecoder(f).Decode(&k); err != nil {
		return Survivor{}, fmt.Errorf("%s: %w", path, ErrNotKept)
	}
	if k.Version > keptVersion {
		return Survivor{}, fmt.Errorf("%s: written by a newer version (%d, this one knows %d): %w", path, k.Version, keptVersion, ErrNotKept)
	}
	return k.Survivor, nil
}

// create makes a Keep file and locks it. The lock belongs to the opened file, so it lasts as long as anybody has it
// open: here that is the supervisor.
func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// keep writes the outcome where a later life of the caller finds it. It comes before the news of the same: a caller
// that dies between the two must find it.
func (s *supervision) keep(end *Outcome) {
	if s.command.Keep == "" || !s.command.Survive {
		return
	}
	if s.drained == nil && s.callerDied() {
		s.abandoned() // its end has not been heard yet: the program's came first
	}
	if s.drained != nil {
		select {
		case <-s.drained:
		case <-time.After(leftoverGrace): // somebody outside of the tree holds the pipe
		}
	}
	f := os.NewFile(keepFD, s.command.Keep)
	output, lost := s.tail.take()
	text, err := json.Marshal(kept{keptVersion, Survivor{*end, output, lost}})
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Truncate(0) // half an outcome is none
	}
}

// callerDied asks the kernel whether anybody can still send orders; whoever has heard the end of the pipe keeps it open
// from then on.
func (s *supervision) callerDied() bool {
	fds := []unix.PollFd{{Fd: controlFD}}
	for {
		switch _, err := unix.Poll(fds, 0); err {
		case nil:
			if fds[0].Revents&unix.POLLHUP != 0 {
				return true
			}
		case unix.EINTR:
			continue
		}
		select {
		case <-s.gone:
			return true
		default:
			return false
		}
	}
}

// A tail keeps the last bytes that were written to it.
type tail struct {
	mu    sync.Mutex
	last  []byte
	total int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.last = append(t.last, p...)
	if len(t.last) > 2*KeptOutput {
		t.last = append(t.last[:0], t.last[len(t.last)-KeptOutput:]...)
	}
	return len(p), nil
}

// take returns them, from the beginning of a character on, and how many bytes came before them.
func (t *tail) take() (last []byte, before int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last = t.last[max(0, len(t.last)-KeptOutput):]
	for cut := 0; int64(len(last)) < t.total && cut < utf8.UTFMax-1 && !utf8.RuneStart(last[0]); cut++ {
		last = last[1:]
	}
	return last, t.total - int64(len(last))
}
