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
		Long: "Cancel tasks. A task that has not begun never begins. One that has is stopped with all its processes first, and is cancelling\n" +
			"until they are gone; --wait waits for that, and says when its runner is silent. A task that had ended already stays as it\n" +
			"is, and one that is being cancelled already goes on being cancelled: the line says so.",
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
			return p.cancelAll(cmd.Context(), c, args, how, f.wait)
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
		wrong = append(wrong, fmt.Errorf("--signal %q is none of %s%s", f.signal, strings.Join(signals, ", "), meant(how.Signal, signals)))
	}
	return how, errors.Join(wrong...)
}

// cancelAll asks for the end of each task, and then waits for those that have not ended, if that is wanted.
func (p *program) cancelAll(ctx context.Context, c *client.Client, ids []string, how client.Cancellation, wait bool) error {
	var wrong []error
	var open []client.Task
	for _, id := range ids {
		t, repeated, err := c.Cancel(ctx, id, how)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("cancel %s: %w", id, err))
			continue
		}
		waits := wait && !view.Ended(t.State)
		if waits {
			open = append(open, t)
		}
		switch {
		case p.json() && !waits:
			err = p.out.jsonLine(t)
		case !p.json():
			p.out.say("%s", p.cancelLine(t, repeated))
			if repeated && t.EndedAt == nil && (how.Signal != "" || how.GraceSeconds > 0) {
				p.talk.say("%s", notTaken(t))
			}
		}
		if err != nil {
			return err
		}
	}
	var last error
	for _, t := range open {
		if err := p.cancelEnd(ctx, c, t.TaskID); err != nil {
			last = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return together(last, wrong)
}

// cancelLine says what became of a cancel; repeated means nothing that was not so before.
func (p *program) cancelLine(t client.Task, repeated bool) string {
	line := visible(t.TaskID) + "  " + p.out.state(t.State) + p.silence(t)
	switch {
	case repeated && t.EndedAt != nil:
		line += "  had ended " + p.when(*t.EndedAt) + ": " + outcome(t)
	case repeated && t.Cancel != nil:
		line += "  was being cancelled already, " + visible(p.stopBy(t.Cancel))
	}
	return line
}

// notTaken says of a repeated cancel that its signal and grace do not count.
func notTaken(t client.Task) string {
	text := "  --signal and --grace of the earlier cancel stay"
	if t.Cancel == nil || !t.Cancel.Force {
		text += "; with --force the new ones count"
	}
	return text
}

// cancelEnd waits until a task that is being cancelled has ended, and says how. Work of which nobody knows whether it was
// stopped is an Exit.
func (p *program) cancelEnd(ctx context.Context, c *client.Client, id string) error {
	t, err := p.await(ctx, c, id)
	switch {
	case errors.Is(err, context.Canceled):
		return &Exit{Code: ExitInterrupted, err: err, text: "interrupted; the cancel is recorded, and the task is being stopped all the same\n" +
			"  see it: orchestrator task why " + short(id)}
	case err != nil:
		return fmt.Errorf("cancel %s: %w", id, err)
	}
	if p.json() {
		err = p.out.jsonLine(t)
	} else {
		p.out.say("%s  %s", visible(id), p.out.paint(stateColours[t.State], outcome(t)))
	}
	if err == nil && t.State == view.Error {
		err = &Exit{Code: ExitError}
	}
	return err
}
