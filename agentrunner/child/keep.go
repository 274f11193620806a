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
)

// KeptOutput is how many bytes of the output a Keep file holds at most: the last ones since the caller died.
const KeptOutput = 256 << 10

// ErrNotKept comes back from Kept when the supervisor was ended before it could write an outcome: nobody knows it. It
// does not come back while there is a supervisor.
var ErrNotKept = errors.New("no outcome was kept")

type kept struct {
	Outcome Outcome
	Output  []byte
}

// Kept reads the outcome of a Command with Keep in a later life of the caller, with the output that came after the
// caller had died. While the program still runs it waits, until ctx ends.
func Kept(ctx context.Context, path string) (Outcome, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return Outcome{}, nil, err
	}
	defer f.Close()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
			tick.Stop()
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return Outcome{}, nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return Outcome{}, nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
	var k kept
	if err := json.NewDecoder(f).Decode(&k); err != nil {
		return Outcome{}, nil, fmt.Errorf("%s: %w", path, ErrNotKept)
	}
	return k.Outcome, k.Output, nil
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
	if s.drained != nil {
		select {
		case <-s.drained:
		case <-time.After(leftoverGrace): // somebody outside of the tree holds the pipe
		}
	}
	f := os.NewFile(keepFD, s.command.Keep)
	text, err := json.Marshal(kept{*end, s.tail.take()})
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

// A tail keeps the last bytes that were written to it.
type tail struct {
	mu   sync.Mutex
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if len(t.last) > 2*KeptOutput {
		t.last = append(t.last[:0], t.last[len(t.last)-KeptOutput:]...)
	}
	return len(p), nil
}

func (t *tail) take() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[max(0, len(t.last)-KeptOutput):]
}
