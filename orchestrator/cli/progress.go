package cli

import (
	"fmt"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/pkg/message"
)

// progress is where a task is, as far as its events have told. It reads no clock and prints nothing.
type progress struct {
	work    string    // its work type
	begun   time.Time // of the present attempt; zero while there is none
	attempt int
	step    int
	name    string
	percent int // of the present attempt; -1 while unknown
}

// apply takes the next event and returns what is worth a line of its own, fit for a terminal; "" when nothing is.
func (g *progress) apply(e client.Event) string {
	if e.Void != "" {
		return visible(fmt.Sprintf("an entry that does not count: %s %s", e.Kind, e.Void))
	}
	m := messageOf(e)
	var x message.Extension
	if m != nil && m.Custom.Chiffon != nil {
		x = *m.Custom.Chiffon
	}
	switch e.Kind {
	case "submitted", "queued":
		g.request(m)
		return "queued"
	case "held":
		g.request(m)
		return visible("held" + because(x))
	case "started":
		*g = progress{work: g.work, begun: e.Time, attempt: e.Attempt, percent: -1}
		g.status(m)
		text := "started on " + e.AgentID
		if e.Attempt > 1 {
			text += fmt.Sprintf(", attempt %d", e.Attempt)
		}
		return visible(text)
	case "paused", "resumed":
		return e.Kind
	case "attempt_failed":
		*g = progress{work: g.work}
		return visible(attemptFailed(e, m, x))
	case "cancel_requested":
		return visible("cancelling" + cancelled(x))
	case "status":
		if e.Attempt != 0 && e.Attempt != g.attempt {
			return "" // of an attempt that is over
		}
		return g.status(m)
	case "gap":
		return gapText(e)
	}
	return ""
}

func (g *progress) request(m *message.Any) {
	if m != nil && m.Request != nil {
		g.work = m.Request.WorkType
	}
}

// status takes a work_status; a step that was not seen before is worth a line. What comes before the first real step, or is not divided
// into steps, has the name of the work.
func (g *progress) status(m *message.Any) string {
	if m == nil || m.Status == nil {
		return ""
	}
	if p := m.Status.ProgressPercent; p != nil {
		g.percent = *p
	}
	s := m.Status.Step
	if s == nil || s.Number == g.step && s.Name == g.name {
		return ""
	}
	g.step, g.name = s.Number, s.Name
	if s.Name == g.work {
		return ""
	}
	return visible(fmt.Sprintf("step %d  %s", s.Number, s.Name))
}

func because(x message.Extension) string {
	if x.Hold == nil {
		return ""
	}
	if x.Hold.Detail != "" {
		return ": " + x.Hold.Detail
	}
	return ": " + x.Hold.Reason
}

func cancelled(x message.Extension) (text string) {
	if x.Cancel == nil {
		return ""
	}
	if x.Cancel.By != "" {
		text = ", asked by " + x.Cancel.By
	}
	if x.Cancel.Reason != "" {
		text += ": " + x.Cancel.Reason
	}
	return text
}

func attemptFailed(e client.Event, m *message.Any, x message.Extension) string {
	text := fmt.Sprintf("attempt %d failed", e.Attempt)
	if m != nil && m.Failure != nil {
		text += fmt.Sprintf(": %d: %s", m.Failure.Code, m.Failure.Message)
	}
	if x.RetryAt != nil {
		text += "; the next begins in " + span(x.RetryAt.Sub(e.Time))
	}
	return text
}
