package cli

import (
	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
)

func newTaskWatch(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a task to its end and show its result",
		Long: "Follow a task to its end and show its result. Ends as the task ends: 0 succeeded, 2 cancelled, 3 failed, 5 error or\n" +
			"timed out. An interruption (130) ends the watching only; the task goes on.",
		Example: `  orchestrator task watch 3f2a
  orchestrator task watch 3f2a -o json | jq -r .kind`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.taskIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			task, err := p.follow(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return ended(task)
		}),
	}
}
