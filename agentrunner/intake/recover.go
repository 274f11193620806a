package intake

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/work"
	"chiffon/pkg/message"
)

// settle tells the log what became of an attempt of an earlier life. It is never run again: that it was ours entitles
// to report, not to run.
func (i *Intake) settle(ctx context.Context, s *slot) {
	defer i.empty(s)
	switch {
	case s.record.Late != nil:
		i.tellLate(ctx, s)
		return
	case s.record.Outcome != nil:
		s.log.Info("outcome of an earlier life is told")
		i.tell(ctx, s, *s.record.Outcome)
		return
	}
	for {
		e, found, err := i.cfg.Broker.Last(ctx, i.own(s))
		if err != nil {
			if !sleep(ctx, retryEvery) {
				return
			}
			continue
		}
		if !found || e.ID != s.record.Entry && (e.Attempt != s.attempt || e.Boot != s.boot) {
			i.remove(s) // its started entry was never stored
			return
		}
		s.record.Started = e.Seq
		break
	}
	if s.record.Child == 0 {
		s.stop.why = byLoss // its supervisor has ended it
	} else if !i.outlived(ctx, s) {
		return
	}
	s.log.Warn("attempt of an earlier life is lost", "begun", s.record.Begun)
	i.end(ctx, s, ending{
		outcome: work.Outcome{Status: message.ResultFailed, Fault: i.died(s)}, begun: s.record.Begun,
	}, nil)
}

// outlives notes the process of work that goes on when the runner dies.
func (i *Intake) outlives(s *slot, pid int) {
	s.record.Child, s.record.ChildStart = pid, processStart(pid)
	if err := i.cfg.Spool.Put(s.record); err != nil {
		s.log.Error("process is not noted", "pid", pid, "error", err)
	}
}

// outlived waits until the process that went on without its runner is gone, and ends it when stop is wanted. False
// when ctx ended before.
func (i *Intake) outlived(ctx context.Context, s *slot) bool {
	running := func() bool {
		start := processStart(s.record.Child)
		return start != "" && start == s.record.ChildStart
	}
	asked := time.Time{}
	for running() {
		if asked.IsZero() {
			if h, _ := i.confirm(ctx, s); h == holdCancelling || h == holdLost {
				asked = time.Now()
				_ = syscall.Kill(-s.record.Child, syscall.SIGTERM) // it may just have ended
			}
		} else if time.Since(asked) > child.DefaultGrace {
			_ = syscall.Kill(-s.record.Child, syscall.SIGKILL) // likewise
		}
		if !sleep(ctx, retryEvery) {
			return false
		}
	}
	if !asked.IsZero() {
		s.stop.why = byLoss
	}
	return true
}

// processStart tells one process from another of the same number; empty when there is none, or it has ended and only
// waits to be counted.
func processStart(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 20 || string(f[0]) == "Z" {
		return ""
	}
	return string(f[19])
}
