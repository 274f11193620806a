package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

func newTaskHistory(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "history ID",
		Short: "Show every entry of a task's log",
		Long: "Show every entry of a task's log, a line each: when, what, which attempt, by whom, who holds the task after it, and why.\n" +
			"Entries that do not count are marked void, and say why; outcomes that came too late to be recorded are marked late.",
		Example: `  orchestrator task history 3f2a
  orchestrator task history 3f2a -o json | jq '.events[].cause'`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.taskIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			t := table{head: []string{"TIME", "ENTRY", "ATTEMPT", "WRITER", "HOLDER", "CAUSE"}}
			for cursor := ""; ; {
				page, err := c.History(cmd.Context(), args[0], cursor)
				if err != nil {
					return err
				}
				if p.json() {
					if err := p.out.json(page.JSON); err != nil {
						return err
					}
				}
				for _, e := range page.Events {
					t.rows = append(t.rows, p.historyRow(e))
				}
				if cursor = page.NextCursor; cursor == "" {
					break
				}
			}
			if !p.json() {
				p.out.table(t)
			}
			return nil
		}),
	}
}

func (p *program) historyRow(e view.Event) []string {
	kind, attempt, at := e.Kind, "", e.Time.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	if p.out.terminal {
		at = e.Time.In(p.now().Location()).Format(time.DateTime + ".000")
	}
	if e.Attempt > 0 {
		attempt = fmt.Sprint(e.Attempt)
	}
	why := e.Cause
	if e.Void != "" {
		kind = strings.TrimSpace(kind + " (void)")
		why = strings.TrimPrefix(why+"; it does not count: "+e.Void, "; ")
	}
	return []string{at, kind, attempt, e.Writer, e.Holder, why}
}
