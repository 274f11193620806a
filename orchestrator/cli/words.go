package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

// short is the beginning of an id that one can type: enough to be unique but by bad luck, and then the server says so.
func short(id string) string { return id[:min(8, len(id))] }

// when is a time for people on a terminal ("3m ago") and for programs in a pipe.
func (p *program) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if !p.out.terminal {
		return t.UTC().Format(time.RFC3339)
	}
	d := p.now().Sub(t)
	if d < 0 {
		return "in " + span(-d)
	}
	return span(d) + " ago"
}

func (p *program) whenPtr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return p.when(*t)
}

// span is a length of time in one unit, two for what one waits for.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// rough is a length of time in one unit without its parts.
func rough(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(0, d).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// silence says that nobody knows what a task does, for its runner gives no sign of life; "" when it does.
func (p *program) silence(t client.Task) string {
	if t.SilentSince == nil || view.Ended(t.State) {
		return ""
	}
	return " (runner silent for " + rough(p.now().Sub(*t.SilentSince)) + ")"
}

// stopBy says who wants a task stopped, since when and why.
func (p *program) stopBy(c *view.Cancel) string {
	text := "by " + c.By
	if c.Deadline || c.By == "" {
		text = "its time was over"
	}
	if c.At != nil {
		text += ", " + p.when(*c.At)
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// pairs is a map as "k=v k=v", in order.
func pairs(m map[string]string) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k+"="+m[k])
	}
	return strings.Join(list, " ")
}

// bytesOf is an amount of data for people.
func bytesOf(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// outcome says in a line how a task ended, fit for a terminal.
func outcome(t client.Task) string {
	after := ""
	if t.StartedAt != nil && t.EndedAt != nil {
		after = " after " + span(t.EndedAt.Sub(*t.StartedAt))
	}
	switch {
	case t.State == view.Error && t.Error != nil:
		return visible(fmt.Sprintf("error %d%s: %s", t.Error.Code, after, t.Error.Message))
	case t.State == view.Failed && t.Result != nil:
		return fmt.Sprintf("failed with exit code %d%s", t.Result.ExitCode, after)
	}
	return visible(t.State + after)
}

func faultText(f *view.Fault) string { return fmt.Sprintf("%d: %s", f.Code, f.Message) }
