// Package why says in plain sentences why a task or an agent is where it is, and what comes next. Pure functions over
// facts: it knows neither where those come from nor what is decided.
package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// Facts is what a reason rests on, beside the task or the agent itself. Its functions may be nil.
type Facts struct {
	Now       time.Time
	Since     time.Time // agents are listened to since then
	Lease     time.Duration
	Grace     time.Duration
	Silence   time.Duration // after which a holder that no heartbeat lists counts as silent
	LostAfter time.Duration // how long work that may not be repeated may be out of reach
	Agents    []registry.Agent

	// Held is what an agent holds by the log, and Task one task of it.
	Held func(subject.AgentID) []ledger.Task
	Task func(subject.TaskID) (ledger.Task, bool)

	// Shut says whether an agent is to get no new work.
	Shut func(subject.AgentID) gate.Shut

	// Lapsed says before when an agent is not tried again with a task that it did not start.
	Lapsed func(subject.TaskID, subject.AgentID) time.Time

	// Listed says when a heartbeat last listed an attempt; zero if none has.
	Listed func(id subject.TaskID, attempt int, boot uint64) time.Time

	// Result and Late are of the task that is asked about: the recorded result, and outcomes that came too late for
	// the log.
	Result *view.Result
	Late   []view.Event
}

func (f Facts) agent(id string) (registry.Agent, bool) {
	for _, a := range f.Agents {
		if string(a.AgentID) == id {
			return a, true
		}
	}
	return registry.Agent{}, false
}

func (f Facts) held(id subject.AgentID) []ledger.Task {
	if f.Held == nil {
		return nil
	}
	return f.Held(id)
}

// taken is how many slots of an agent are taken: by what its latest heartbeat lists, but for what has left it since, and
// by what the log says that it has begun since.
func (f Facts) taken(a registry.Agent) int {
	n := len(f.lists(a))
	for _, t := range f.held(a.AgentID) {
		if !lists(a, t.ID) && t.Seen.After(a.Heard) {
			n++
		}
	}
	return n
}

// lists is what an agent's latest heartbeat lists, but for what has left it since.
func (f Facts) lists(a registry.Agent) []message.Running {
	if f.Task == nil {
		return a.Running
	}
	return slices.DeleteFunc(slices.Clone(a.Running), func(r message.Running) bool {
		t, ok := f.Task(r.TaskID)
		return ok && t.Seen.After(a.Heard) && !holds(t, a)
	})
}

func lists(a registry.Agent, id subject.TaskID) bool {
	return slices.ContainsFunc(a.Running, func(r message.Running) bool { return r.TaskID == id })
}

// holds reports whether an agent holds a task by the log.
func holds(t ledger.Task, a registry.Agent) bool {
	p := t.State.Phase
	return (p == tasklog.PhaseRunning || p == tasklog.PhaseCancelling) && t.State.Holder == string(a.AgentID)
}

func (f Facts) shut(id subject.AgentID) gate.Shut {
	if f.Shut == nil {
		return gate.Shut{}
	}
	return f.Shut(id)
}

func (f Facts) lapsed(task subject.TaskID, agent subject.AgentID) time.Time {
	if f.Lapsed == nil {
		return time.Time{}
	}
	return f.Lapsed(task, agent)
}

func (f Facts) listed(id subject.TaskID, attempt int, boot uint64) time.Time {
	if f.Listed == nil {
		return time.Time{}
	}
	return f.Listed(id, attempt, boot)
}

// ago is a moment for people: "3 m ago".
func (f Facts) ago(t time.Time) string { return span(f.Now.Sub(t)) + " ago" }

// silence is how an agent that is not heard is spoken of, after its name: "silent for 3 m", "ended in order at 14:02".
func (f Facts) silence(a registry.Agent) string {
	if a.Stopped() {
		return a.Ended(f.Now)
	}
	if a.Heard.IsZero() {
		return "not heard since this orchestrator listens (" + span(f.Now.Sub(f.Since)) + ")"
	}
	return "silent for " + span(f.Now.Sub(a.Heard))
}

// span is a length of time for people: "3 s", "12 m", "2 h 5 m", "3 d".
func span(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d m", int(d.Minutes()))
	case d < 48*time.Hour && int(d.Minutes())%60 > 0:
		return fmt.Sprintf("%d h %d m", int(d.Hours()), int(d.Minutes())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours())/24)
}

// short is as much of an id as people type.
func short(id subject.TaskID) string { return string(id[:min(8, len(id))]) }

// colon puts details behind a text, if there are any.
func colon(text, details string) string {
	if details == "" {
		return text
	}
	return text + ": " + details
}

// some is "1 task", "2 tasks".
func some(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func join(parts ...string) string {
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return strings.Join(list, ", ")
}
