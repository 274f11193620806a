package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
)

func newTask(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "task",
		Short: "List, show, watch, cancel and retry tasks, and see why they are where they are",
		Long:  "Tasks: list, show, watch, read their output, cancel, start anew. ID is a task's id or any unique beginning of it.",
		Example: `  orchestrator task list --state queued --state running
  orchestrator task watch 3f2a
  orchestrator task why 3f2a
  orchestrator task cancel 3f2a --reason "wrong host"
  orchestrator task retry --failed --since 1h --dry-run`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newTaskList(p), newTaskShow(p), newTaskWatch(p), newTaskLogs(p), newTaskCancel(p), newTaskRetry(p), newTaskWhy(p),
		newTaskHistory(p))
	return cmd
}

// taskIDs completes ids of tasks from the newest ones.
func (p *program) taskIDs(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	c, err := p.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	page, err := c.Page(ctx, client.TaskQuery{Limit: 100})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, t := range page.Tasks {
		if strings.HasPrefix(t.TaskID, begin) && !slices.Contains(args, t.TaskID) {
			ids = append(ids, cobra.CompletionWithDesc(visible(t.TaskID), visible(t.WorkType+" "+t.State)))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
