package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

func newTaskShow(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show all that is known of a task",
		Example: `  orchestrator task show 3f2a
  orchestrator task show 3f2a -o json | jq .result.exit_code`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.taskIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			t, err := c.Task(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if p.json() {
				return p.out.json(t)
			}
			p.showTask(t)
			return nil
		}),
	}
}

func (p *program) showTask(t client.Task) {
	p.out.facts([][2]string{
		{"task", visible(t.TaskID)},
		{"name", visible(t.Name)},
		{"state", p.out.state(t.State) + p.silence(t)},
		{"waiting for", visible(t.WaitingFor)},
		{"work", visible(t.WorkType + " for " + t.AgentType)},
		{"retry of", visible(t.RetryOf)},
		{"parameters", parametersText(t.Parameters)},
		{"priority", visible(t.Priority)},
		{"wanted", visible(wanted(t))},
		{"labels", visible(pairs(t.Labels))},
		{"limits", limits(t.Hints)},
		{"agent", visible(t.AgentID)},
		{"attempt", attemptText(t)},
		{"next attempt", p.nextAttempt(t)},
		{"progress", visible(progressText(t))},
		{"submitted", visible(strings.TrimSuffix(p.when(t.SubmittedAt)+" by "+t.SubmittedBy, " by "))},
		{"expires", p.whenPtr(t.ExpiresAt)},
		{"started", p.whenPtr(t.StartedAt)},
		{"ended", p.whenPtr(t.EndedAt)},
		{"stop wanted", visible(p.stopText(t))},
		{"outcome", ending(t)},
		{"fault", lastFault(t)},
		{"used", used(t)},
		{"output", output10(t)},
		{"trace", visible(t.TraceID)},
		{"request", visible(t.RequestID)},
	})
}

// nextAttempt is when the next attempt is due. Once that is over "waiting for" says what it waits for still: until the
// one before has certainly stopped, or for an agent.
func (p *program) nextAttempt(t client.Task) string {
	if t.RetryAt == nil || !t.RetryAt.After(p.now()) {
		return ""
	}
	return p.when(*t.RetryAt)
}

func (p *program) stopText(t client.Task) string {
	c := t.Cancel
	if c == nil {
		return ""
	}
	text := p.stopBy(c)
	if c.Signal != "" {
		text += ", with " + c.Signal
	}
	if c.GraceSeconds > 0 {
		text += ", killed after " + rough(time.Duration(c.GraceSeconds)*time.Second)
		if t.Attempts > 1 {
			text += " at most, within its lease"
		}
	}
	if c.Force {
		text += ", by force"
	}
	return text
}

// parametersText is the parameters on one line if they are short.
func parametersText(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || string(raw) == "{}" || json.Compact(&b, raw) != nil {
		return ""
	}
	if b.Len() <= 80 {
		return visible(b.String())
	}
	b.Reset()
	_ = json.Indent(&b, raw, "  ", "  ") // it was compacted just now
	return visibleText(b.String())
}

func wanted(t client.Task) string {
	var list []string
	if t.Agent != "" {
		list = append(list, "agent "+t.Agent)
	}
	if len(t.On) > 0 {
		list = append(list, "labels "+pairs(t.On))
	}
	if len(t.Needs) > 0 {
		list = append(list, "capabilities "+strings.Join(t.Needs, " "))
	}
	return strings.Join(list, ", ")
}

func limits(h *view.Hints) string {
	if h == nil {
		return ""
	}
	var list []string
	if h.MaxDurationSeconds > 0 {
		list = append(list, fmt.Sprintf("%d s", h.MaxDurationSeconds))
	}
	if h.MaxMemoryMB > 0 {
		list = append(list, fmt.Sprintf("%d MB of memory", h.MaxMemoryMB))
	}
	if h.GPUVRAMMB > 0 {
		list = append(list, fmt.Sprintf("%d MB of video memory", h.GPUVRAMMB))
	}
	return strings.Join(list, ", ")
}

func attemptText(t client.Task) string {
	if t.Attempt == 0 {
		return ""
	}
	if t.Attempts == 0 {
		return fmt.Sprint(t.Attempt)
	}
	return fmt.Sprintf("%d of %d", t.Attempt, t.Attempts)
}

func progressText(t client.Task) string {
	if view.Ended(t.State) {
		return ""
	}
	text := ""
	if t.ProgressPercent != nil {
		text = fmt.Sprintf("%d%%", *t.ProgressPercent)
	}
	if t.Step != nil {
		text += fmt.Sprintf(" step %d %s", t.Step.Number, t.Step.Name)
	}
	return strings.TrimSpace(text)
}

func ending(t client.Task) string {
	if !view.Ended(t.State) {
		return ""
	}
	return outcome(t)
}

// lastFault is the error of the last attempt where outcome does not tell it.
func lastFault(t client.Task) string {
	if t.Error == nil || t.State == view.Error {
		return ""
	}
	return visible(faultText(t.Error))
}

// used is empty for a task that never began, though its end is a result like others.
func used(t client.Task) string {
	if t.Result == nil || t.StartedAt == nil {
		return ""
	}
	u := t.Result.ResourcesUsed
	text := fmt.Sprintf("%d s, %.1f s of processor", u.DurationSeconds, float64(u.CPUTimeMS)/1000)
	if u.GPUVRAMMB > 0 {
		text += fmt.Sprintf(", %d MB of video memory", u.GPUVRAMMB)
	}
	return text
}

// output10 is the last ten lines of a result's output, and where to see what is kept of the rest.
func output10(t client.Task) string {
	if t.Result == nil || t.Result.Output == "" {
		return ""
	}
	data, err := resultBytes(t.Result)
	if err != nil {
		return visible(err.Error())
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	var text strings.Builder
	text.WriteString(bytesOf(max(t.Result.OutputBytes, int64(len(data)))) + "; see: orchestrator task logs " + visible(short(t.TaskID)))
	for _, line := range lines[max(0, len(lines)-10):] {
		text.WriteString("\n  " + visible(strings.TrimRight(line, "\r")))
	}
	return text.String()
}
