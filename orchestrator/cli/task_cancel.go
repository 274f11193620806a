package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

func newTaskCancel(p *program) *cobra.Command {
	var reason string
	var wait bool
	cmd := &cobra.Command{
		Use:   "cancel ID…",
		Short: "Cancel tasks",
		Long: "Cancel tasks. A task that has begun is stopped with all its processes first, and is cancelling until they are gone; --wait\n" +
			"waits for that. A task that had ended already stays as it is.",
		Example: `  orchestrator task cancel 3f2a --reason "wrong host"
  orchestrator task cancel 3f2a 77be --wait`,
		Args:              arguments(1, -1, "ID…"),
		ValidArgsFunction: p.taskIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			var wrong []error
			for _, id := range args {
				if err := p.cancel(cmd.Context(), c, id, reason, wait); err != nil {
					wrong = append(wrong, fmt.Errorf("cancel %s: %w", id, err))
				}
			}
			return errors.Join(wrong...)
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that is kept with the task")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it has ended")
	return cmd
}

func (p *program) cancel(ctx context.Context, c *client.Client, id, reason string, wait bool) error {
	task, err := c.Cancel(ctx, id, client.Cancellation{Reason: reason})
	if err != nil {
		return err
	}
	if wait && !view.Ended(task.State) {
		if task, err = c.Wait(ctx, task.TaskID); err != nil {
			return err
		}
	}
	if p.json() {
		return p.out.jsonLine(task)
	}
	p.out.say("%s  %s", visible(task.TaskID), p.out.state(task.State))
	return nil
}
