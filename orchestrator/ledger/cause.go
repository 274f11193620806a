package ledger

import (
	"fmt"
	"strings"
	"time"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// cause says in words why an entry was appended, as far as it tells; "" when it tells nothing. allowed is how many
// attempts its task has, 0 when that is not known yet.
func cause(e tasklog.Entry, allowed int) string {
	m := e.Message
	x := m.Custom.Chiffon
	if x == nil {
		x = &message.Extension{}
	}
	switch {
	case m.Failure != nil:
		return failureCause(e, x)
	case x.Cancel != nil:
		return cancelCause(x.Cancel, allowed)
	case m.Result != nil && e.Kind == tasklog.Cancelled:
		return "its work is stopped"
	case m.Result != nil:
		return fmt.Sprintf("exit code %d", m.Result.ExitCode)
	case m.Request != nil:
		return requestCause(e, x)
	case x.Late:
		return lateCause(m, x)
	case e.Kind == tasklog.Started:
		text := fmt.Sprintf("attempt %d of %d", e.Attempt, x.Attempts)
		if x.Host != "" {
			text += ", on " + x.Host
		}
		return text
	case e.Kind == tasklog.Paused:
		return "a person is asked"
	case e.Kind == tasklog.Resumed:
		return "a person has answered"
	}
	return ""
}

// lateCause is the outcome that came too late: in words alone, where an older runner tells of it.
func lateCause(m message.Any, x *message.Extension) string {
	switch {
	case x.ExitCode != nil:
		return fmt.Sprintf("%s, exit code %d", x.Outcome, *x.ExitCode)
	case x.ErrorCode != 0:
		return fmt.Sprintf("%s, %d", x.Outcome, x.ErrorCode)
	case x.Outcome == "" && m.Status != nil && m.Status.Step != nil:
		return strings.TrimPrefix(m.Status.Step.Name, "late outcome: ")
	}
	return x.Outcome
}

func failureCause(e tasklog.Entry, x *message.Extension) string {
	text := fmt.Sprintf("%d: %s", e.Message.Failure.Code, e.Message.Failure.Message)
	if e.Kind != tasklog.AttemptFailed || x.RetryAt == nil {
		return text
	}
	if wait := x.RetryAt.Sub(e.Time).Round(time.Second); wait > 0 {
		return fmt.Sprintf("%s; the next is due %v later", text, wait)
	}
	return text + "; the next is due at once"
}

func cancelCause(c *message.Cancel, allowed int) string {
	text := "asked by " + c.By
	if c.Deadline || c.By == "" {
		text = "a stop is wanted"
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	var how []string
	if c.Signal != "" {
		how = append(how, "with "+c.Signal)
	}
	if c.GraceSeconds > 0 {
		kill := fmt.Sprintf("killed after %d s", c.GraceSeconds)
		if allowed > 1 { // another attempt may follow, so this one is over with its lease
			kill += " at most, within its lease"
		}
		how = append(how, kill)
	}
	if c.Force {
		how = append(how, "by force")
	}
	if len(how) > 0 {
		text += " (" + strings.Join(how, ", ") + ")"
	}
	return text
}

func requestCause(e tasklog.Entry, x *message.Extension) string {
	whom := "for any agent of type " + string(e.Subject.Type)
	switch e.Subject.Target {
	case subject.Any:
	case subject.Held:
		whom = "it may not begin yet"
		if h := x.Hold; h != nil {
			whom = h.Reason
			if h.Detail != "" {
				whom += ": " + h.Detail
			}
		}
	default:
		whom = "for agent " + e.Subject.Target
	}
	switch {
	case e.Attempt > 0:
		return fmt.Sprintf("attempt %d, %s", e.Attempt+1, whom)
	case e.Kind == tasklog.Submitted && x.RetryOf != "":
		return fmt.Sprintf("by %s, %s, as a retry of %s", x.SubmittedBy, whom, x.RetryOf)
	case e.Kind == tasklog.Submitted && x.SubmittedBy != "":
		return fmt.Sprintf("by %s, %s", x.SubmittedBy, whom)
	}
	return whom
}
