package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

// ends are the states that a task may be started anew from.
var ends = []string{view.Succeeded, view.Failed, view.Cancelled, view.Error}

// retryFlags say which tasks are to be started anew, and what is to be seen of that.
type retryFlags struct {
	filter                             taskFilter
	failed, dry, another, wait, follow bool
}

func newTaskRetry(p *program) *cobra.Command {
	var f retryFlags
	cmd := &cobra.Command{
		Use:   "retry ID… | --failed",
		Short: "Start ended tasks anew",
		Long: "Start ended tasks anew: each becomes a new task with the same request, which names the old one. A task has one retry: the\n" +
			"same command again shows that one, and starts nothing; --again starts another. With --failed all tasks are meant that\n" +
			"ended as failed or with an error, or in the states that --state names, and that the other filters choose: the newest up to\n" +
			"--limit, the oldest of them first. Nothing is asked; --dry-run shows which they are. With --wait or --follow ends as the task\n" +
			"ends, of several as the one that ended worst.",
		Example: `  orchestrator task retry 3f2a --follow
  orchestrator task retry --failed --since 1h --dry-run
  orchestrator task retry --failed --label app=web --wait`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: p.taskIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := f.query(cmd, args, p)
			if err != nil {
				return &mistake{cmd.CommandPath(), err}
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			if f.failed {
				return p.retryAll(cmd.Context(), c, q, f)
			}
			return p.retry(cmd.Context(), c, args, f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.failed, "failed", false, "all that failed or ended with an error, and that the filters choose")
	f.filter.add(cmd, ends)
	flags.BoolVar(&f.dry, "dry-run", false, "of --failed: only show which they are")
	flags.BoolVar(&f.another, "again", false, "also what was started anew before")
	flags.BoolVar(&f.wait, "wait", false, "wait for the end")
	flags.BoolVarP(&f.follow, "follow", "f", false, "of one task: show its progress and its result")
	return cmd
}

// filters are the flags that go with --failed.
var filters = []string{"state", "type", "agent", "work-type", "label", "since", "until", "limit", "dry-run"}

func (f *retryFlags) query(cmd *cobra.Command, ids []string, p *program) (client.TaskQuery, error) {
	q, err := f.filter.query(p.now(), ends)
	if len(q.States) == 0 {
		q.States = []string{view.Failed, view.Error}
	}
	switch {
	case f.failed && len(ids) > 0:
		err = errors.Join(err, errors.New("give either ids or --failed"))
	case !f.failed && len(ids) == 0:
		err = errors.Join(err, errors.New("task retry wants ID…, or --failed"))
	case f.follow && (f.failed || len(ids) > 1):
		err = errors.Join(err, errors.New("--follow shows one task; for several: --wait"))
	}
	for _, name := range filters {
		if !f.failed && cmd.Flags().Changed(name) {
			err = errors.Join(err, fmt.Errorf("--%s goes with --failed", name))
		}
	}
	return q, err
}

// retryAll starts anew what a query chooses, the oldest first.
func (p *program) retryAll(ctx context.Context, c *client.Client, q client.TaskQuery, f retryFlags) error {
	var found []client.Task
	limit, more := q.Limit, false
	q.Limit = min(limit, maxPage)
	for t, err := range c.Tasks(ctx, q) {
		if err != nil {
			return err
		}
		if more = len(found) == limit; more {
			break
		}
		found = append(found, t)
	}
	slices.Reverse(found)
	if more {
		p.talk.say("there are more than the newest %d: --limit N", limit)
	}
	if len(found) == 0 {
		p.talk.say("no such tasks")
		return nil
	}
	if f.dry {
		return p.wouldRetry(found)
	}
	var ids []string
	for _, t := range found {
		ids = append(ids, t.TaskID)
	}
	return p.retry(ctx, c, ids, f)
}

func (p *program) wouldRetry(found []client.Task) error {
	t := table{head: taskHead}
	for _, task := range found {
		if p.json() {
			if err := p.out.jsonLine(task); err != nil {
				return err
			}
		}
		t.rows = append(t.rows, p.taskRow(task))
	}
	if !p.json() {
		p.out.table(t)
	}
	p.talk.say("would start anew %s, but for those that were before", tasksText(len(found)))
	return nil
}

func tasksText(n int) string {
	if n == 1 {
		return "one task"
	}
	return fmt.Sprintf("%d tasks", n)
}

// retry starts tasks anew, each of them whatever becomes of the others, and then waits or follows as it is asked.
func (p *program) retry(ctx context.Context, c *client.Client, ids []string, f retryFlags) error {
	var wrong []error
	var fresh []client.Task
	for _, id := range ids {
		t, known, err := c.Retry(ctx, id, f.another)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("retry %s: %w", id, err))
			continue
		}
		fresh = append(fresh, t)
		if err := p.retried(t, known, len(ids) > 1 || f.failed, f.wait || f.follow); err != nil {
			return err
		}
	}
	switch {
	case f.follow && len(fresh) == 1:
		t, err := p.follow(ctx, c, fresh[0].TaskID)
		if err != nil {
			return err
		}
		return ended(t)
	case f.wait:
		return together(p.awaitAll(ctx, c, fresh), wrong)
	}
	return errors.Join(wrong...)
}

// retried tells of one retry: the new id, of several behind the old one.
func (p *program) retried(t client.Task, known, several, stays bool) error {
	if p.json() {
		if stays {
			return nil
		}
		return p.out.jsonLine(t)
	}
	id, old := visible(t.TaskID), visible(t.RetryOf)
	switch {
	case several && known:
		p.out.say("%s  %s  %s, was started anew before", old, id, p.out.state(t.State))
	case several:
		p.out.say("%s  %s", old, id)
	default:
		p.out.say("%s", id)
	}
	if known && !several {
		p.talk.say("task %s was started anew before, as %s; its state is %s", short(old), short(id), p.talk.state(t.State))
		p.talk.say("  another time: orchestrator task retry %s --again", short(old))
	}
	return nil
}

// awaitAll waits for the end of each task, and ends as the worst of them.
func (p *program) awaitAll(ctx context.Context, c *client.Client, tasks []client.Task) error {
	worst := &Exit{}
	for _, t := range tasks {
		id := t.TaskID
		t, err := p.await(ctx, c, id)
		if err != nil {
			return interrupted(err, short(id))
		}
		if p.json() {
			if err := p.out.jsonLine(t); err != nil {
				return err
			}
		} else {
			p.talk.say("%s  %s", visible(short(id)), p.talk.paint(stateColours[t.State], outcome(t)))
		}
		if e, ok := errors.AsType[*Exit](ended(t)); ok && e.Code > worst.Code {
			worst = e
		}
	}
	if worst.Code == ExitOK {
		return nil
	}
	return worst
}
