package dispatch

import (
	"cmp"
	"slices"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// urgent sorts tasks by what is to be looked at first: what somebody holds or held, then what waits for an agent, by
// priority and age, and last what only stands there by mistake.
func urgent(tasks []ledger.Task) []ledger.Task {
	slices.SortFunc(tasks, moreUrgent)
	return tasks
}

func moreUrgent(a, b ledger.Task) int {
	return cmp.Or(cmp.Compare(class(a), class(b)), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.FirstSeq, b.FirstSeq))
}

func class(t ledger.Task) int {
	switch t.State.Phase {
	case tasklog.PhaseRunning, tasklog.PhaseFailed, tasklog.PhaseCancelling:
		return 0
	case tasklog.PhaseHeld, tasklog.PhaseQueued:
		return 1
	case tasklog.PhaseNone, tasklog.PhaseEnded:
	}
	return 2
}

// rank is the place of a waiting task's priority, the most urgent first.
func rank(t ledger.Task) int {
	if class(t) != 1 {
		return 0
	}
	return slices.Index(subject.Priorities, t.State.Priority)
}
