package cli

import (
	"context"
	"errors"
	"fmt"

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
			if cmd.Flags().Changed("attempt") && attempt < 1 {
				return &mistake{cmd.CommandPath(), fmt.Errorf("--attempt %d: attempts count from 1", attempt)}
			}
			return p.logs(cmd.Context(), c, args[0], follow, attempt)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "then go on until the task has ended")
	cmd.Flags().IntVar(&attempt, "attempt", 0, "of attempt `N` only")
	return cmd
}

func (p *program) logs(ctx context.Context, c *client.Client, id string, follow bool, attempt int) error {
	out := p.out.foreign()
	own := &sieve{teller: &output{p: p, out: out, only: attempt}}
	var t teller = own
	lines := &attemptLines{eventLines: eventLines{p}, only: attempt}
	if p.json() {
		t = lines
	}
	var err error
	if follow {
		_, err = p.story(ctx, c, id, t)
	} else {
		err = p.sofar(ctx, c, id, t)
	}
	own.tell(p.talk)
	if err := errors.Join(err, out.Close()); err != nil {
		return interrupted(err, id)
	}
	if latest := max(own.latest, lines.latest); attempt > latest {
		return fmt.Errorf("task %s has no attempt %d: it has begun %s so far", id, attempt, times(latest))
	}
	return nil
}

// attemptLines prints the events of one attempt, or all.
type attemptLines struct {
	eventLines
	only   int // the attempt that is wanted; 0 means all
	latest int
}

func (l *attemptLines) event(e client.Event) error {
	if e.Kind == "started" && e.Void == "" {
		l.latest = max(l.latest, e.Attempt)
	}
	if l.only != 0 && e.Attempt != l.only {
		return nil
	}
	return l.eventLines.event(e)
}

// sofar tells t what has happened to a task up to now.
func (p *program) sofar(ctx context.Context, c *client.Client, id string, t teller) error {
	for e, err := range c.Events(ctx, id, client.EventQuery{}) {
		if err == nil {
			err = t.event(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func times(n int) string {
	switch n {
	case 0:
		return "no attempt"
	case 1:
		return "one attempt"
	}
	return fmt.Sprintf("%d attempts", n)
}
