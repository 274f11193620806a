package child

import (
	"cmp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// checkClock does what is due, and sets the alarm for what comes next.
func (s *supervision) checkClock() {
	now := sinceBoot()
	if s.deadline != 0 && now >= s.deadline {
		s.deadline = 0
		s.outcome.Expired = s.outcome.Expired || !s.ended
		s.stop(syscall.SIGKILL, 0)
	}
	if s.overtime != 0 && now >= s.overtime {
		s.overtime = 0
		if !s.ended && !s.outcome.Stopped {
			s.outcome.OverTime = s.command.MaxTime
			s.stop(s.command.Signal, s.command.Grace)
		}
	}
	// the earlier one, or the only one
	if next := cmp.Or(min(s.deadline, s.overtime), max(s.deadline, s.overtime)); next != 0 {
		s.alarm.Reset(next - now)
	}
}

// checkMemory holds the limit where the kernel does not, and ends what the kernel has left of a tree that it killed a
// part of.
func (s *supervision) checkMemory() {
	if s.outcome.Stopped || s.ended {
		return
	}
	if s.group != nil && s.group.memory {
		s.outcome.OverUsed = s.group.overUsed(s.command.MaxMemory)
	} else if used := residentTree(s.self); used > s.command.MaxMemory {
		s.outcome.OverUsed = used
	}
	if s.outcome.OverUsed > 0 {
		s.outcome.MaxMemory = s.command.MaxMemory
		s.stop(syscall.SIGKILL, 0)
	}
}

// leaveGroup takes the control group away. The tree has ended: what is left in it was put there from outside.
func (s *supervision) leaveGroup() {
	if s.group == nil {
		return
	}
	if used := s.group.overUsed(s.command.MaxMemory); s.group.memory && used > 0 && !s.outcome.Stopped {
		s.outcome.OverUsed, s.outcome.MaxMemory, s.outcome.Stopped = used, s.command.MaxMemory, true // the kernel was faster
	}
	s.group.remove(leftoverGrace)
}

// sinceBoot is a clock that also counts the time the machine sleeps.
func sinceBoot() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return time.Duration(t.Nano())
}
