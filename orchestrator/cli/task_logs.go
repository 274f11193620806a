package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
)

func newTaskLogs(p *program) *cobra.Command {
	var follow bool
	var attempt int
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Show the output of a task, from the first byte",
		Long: "Show the output of a task, from the first byte: raw in a pipe; on a terminal control characters are made visible, but for\n" +
			"colours. What is not kept any more is said on stderr. The exit code is not the task's.",
		Example: `  orchestrator task logs 3f2a
  orchestrator task logs 3f2a -f
  orchestrator task logs 3f2a --attempt 1 > first.log`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.taskIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			return p.logs(cmd.Context(), c, args[0], follow, attempt)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "then go on until the task has ended")
	cmd.Flags().IntVar(&attempt, "attempt", 0, "of attempt `N` only")
	return cmd
}

func (p *program) logs(ctx context.Context, c *client.Client, id string, follow bool, attempt int) error {
	out := p.out.foreign()
	var t teller = &output{p: p, out: out, only: attempt}
	if p.json() {
		t = eventLines{p}
	}
	if follow {
		_, err := p.story(ctx, c, id, t)
		return interrupted(errors.Join(err, out.Close()), id)
	}
	for e, err := range c.Events(ctx, id, client.EventQuery{}) {
		if err == nil {
			err = t.event(e)
		}
		if err != nil {
			return errors.Join(err, out.Close())
		}
	}
	return out.Close()
}
