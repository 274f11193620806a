package intake

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"time"

	"chiffon/pkg/message"
)

// A runner that breaks again soon after it was mended waits longer each time.
const (
	soonAgain  = time.Minute
	longestTry = 60 * time.Second
)

// A defect is what keeps this runner from beginning work: its journal cannot be written. Guarded by Intake.mu.
type defect struct {
	detail string        // "" while there is none
	try    time.Duration // between two tries to write
	mended time.Time
}

// put writes the record of an attempt. When that fails, nothing is taken until the spool can be written again.
func (i *Intake) put(s *slot) error {
	err := i.cfg.Spool.Put(s.record)
	if err != nil {
		i.breakDown(err)
	}
	return err
}

// putOutcome writes the record of an attempt whose outcome is known. Where that fails the outcome is told all the same,
// and written once there is room, for as long as it has not been told.
func (i *Intake) putOutcome(s *slot) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.unkept = nil
	if err := i.put(s); err != nil {
		s.unkept = new(s.record)
		s.log.Error("outcome is held in memory until it can be kept or is told", "error", err)
	}
}

// putUnkept writes the outcomes that could not be written before; false when that still fails.
func (i *Intake) putUnkept() bool {
	ok := true
	for _, s := range i.held() {
		s.disk.Lock()
		if s.unkept != nil {
			if err := i.cfg.Spool.Put(*s.unkept); err == nil {
				s.unkept = nil
			} else {
				ok = false
			}
		}
		s.disk.Unlock()
	}
	return ok
}

func (i *Intake) breakDown(err error) {
	i.mu.Lock()
	already := i.defect.detail != ""
	if !already {
		if time.Since(i.defect.mended) < soonAgain {
			i.defect.try = min(2*i.defect.try, longestTry)
		} else {
			i.defect.try = i.cfg.Mend
		}
		i.defect.detail = "cannot write its journal: " + root(err)
	}
	i.mu.Unlock()
	if already {
		return
	}
	i.cfg.Log.Error("no work is taken until the journal can be written again", "error", err)
	select {
	case i.broken <- struct{}{}:
	default: // mend has yet to hear of the last time, and looks at what is now
	}
	i.cfg.Changed()
}

// mend tries to write the spool of a broken runner, until it can be written again or ctx ends.
func (i *Intake) mend(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.broken:
		}
		i.mu.Lock()
		try := i.defect.try
		i.mu.Unlock()
		for ok := false; !ok; {
			if !sleep(ctx, try) {
				return
			}
			ok = i.putUnkept() && i.cfg.Spool.Try() == nil
		}
		i.mu.Lock()
		i.defect.detail, i.defect.mended = "", time.Now()
		i.mu.Unlock()
		i.cfg.Log.Info("the journal can be written again: work is taken")
		i.cfg.Changed()
		i.wake()
	}
}

// root is what an error says without the way to it.
func root(err error) string {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no.Error()
	}
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), message.MaxDetail/2)], "")
}
