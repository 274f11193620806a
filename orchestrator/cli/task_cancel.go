package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

func newTaskCancel(p *program) *cobra.Command {
	var f cancelFlags
	cmd := &cobra.Command{
		Use:   "cancel ID…",
		Short: "Cancel tasks",
		Long: "Cancel tasks. A task that has begun is stopped with all its processes first, and is cancelling until they are gone; --wait\n" +
			"waits for that. A task that had ended already stays as it is.",
		Example: `  orchestrator task cancel 3f2a --reason "wrong host"
  orchestrator task cancel 3f2a --signal INT --grace 2m
  orchestrator task cancel 3f2a 77be --wait`,
		Args:              arguments(1, -1, "ID…"),
		ValidArgsFunction: p.taskIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			how, err := f.cancellation(cmd.Flags().Changed("grace"))
			if err != nil {
				return &mistake{cmd.CommandPath(), err}
			}
			var wrong []error
			for _, id := range args {
				if err := p.cancel(cmd.Context(), c, id, how, f.wait); err != nil {
					wrong = append(wrong, fmt.Errorf("cancel %s: %w", id, err))
				}
			}
			return errors.Join(wrong...)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.reason, "reason", "", "`TEXT` that is kept with the task")
	flags.DurationVar(&f.grace, "grace", 0, "`DURATION` (30s, 2m) from the signal until what is left is killed; without it the work type's own")
	flags.StringVar(&f.signal, "signal", "", "`NAME` of the signal that asks it to end: "+strings.Join(signals, ", ")+"; without it the work type's own")
	flags.BoolVar(&f.force, "force", false, "end it although its agent does not answer and its processes may go on")
	flags.BoolVar(&f.wait, "wait", false, "wait until it has ended")
	cmd.RegisterFlagCompletionFunc("signal", cobra.FixedCompletions(signals, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// signals are the names that the API knows.
var signals = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL"}

// cancelFlags say how tasks are to be stopped.
type cancelFlags struct {
	reason, signal string
	grace          time.Duration
	force, wait    bool
}

// cancellation checks the flags; graced is whether --grace was given.
func (f *cancelFlags) cancellation(graced bool) (client.Cancellation, error) {
	how := client.Cancellation{Reason: f.reason, Force: f.force}
	var wrong []error
	if graced && (f.grace <= 0 || f.grace > time.Hour) {
		wrong = append(wrong, fmt.Errorf("--grace %v must be more than 0 and at most 1h; to kill at once: --signal KILL", f.grace))
	} else {
		how.GraceSeconds = int((f.grace + time.Second - 1) / time.Second)
	}
	how.Signal = strings.TrimPrefix(strings.ToUpper(f.signal), "SIG")
	if f.signal != "" && !slices.Contains(signals, how.Signal) {
		wrong = append(wrong, fmt.Errorf("--signal %q is none of %s", f.signal, strings.Join(signals, ", ")))
	}
	return how, errors.Join(wrong...)
}

func (p *program) cancel(ctx context.Context, c *client.Client, id string, how client.Cancellation, wait bool) error {
	task, err := c.Cancel(ctx, id, how)
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
