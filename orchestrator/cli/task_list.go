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

// maxPage is the most that the API gives at once.
const maxPage = 500

func newTaskList(p *program) *cobra.Command {
	var q client.TaskQuery
	var labels []string
	var since, until string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Long:  "List tasks, newest first. In a pipe: a line each, cells separated by tabs, whole ids, times as RFC 3339.",
		Example: `  orchestrator task list
  orchestrator task list --state failed --state error --since 24h
  orchestrator task list --label app=web --limit 500 -o json
  orchestrator task cancel $(orchestrator task list --state queued -q)`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var e1, e2, e3, e4 error
			q.Labels, e1 = wordPairs("label", labels)
			q.Since, e2 = moment("since", since, p.now())
			q.Until, e3 = moment("until", until, p.now())
			for _, s := range q.States {
				if !slices.Contains(view.States, s) {
					e4 = fmt.Errorf("--state %q is none of %s", s, strings.Join(view.States, ", "))
				}
			}
			if err := errors.Join(e1, e2, e3, e4); err != nil {
				return &mistake{cmd.CommandPath(), err}
			}
			if q.Limit < 1 {
				return &mistake{cmd.CommandPath(), fmt.Errorf("--limit %d: want 1 or more", q.Limit)}
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			return p.list(cmd.Context(), c, q, quiet)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&q.States, "state", nil, "in `STATE` queued, held, running, paused, cancelling, "+
		"succeeded, failed, cancelled or error; repeat for more")
	flags.StringVar(&q.AgentType, "type", "", "for agents of `TYPE`")
	flags.StringVar(&q.Agent, "agent", "", "that agent `ID` runs or ran")
	flags.StringVar(&q.WorkType, "work-type", "", "of work type `TYPE`")
	flags.StringArrayVar(&labels, "label", nil, "with label `KEY=VALUE`; repeat for more")
	flags.StringVar(&since, "since", "", "submitted since `TIME`: 24h ago, a date, or RFC 3339")
	flags.StringVar(&until, "until", "", "submitted until `TIME`")
	flags.IntVar(&q.Limit, "limit", 50, "at most `N` tasks")
	flags.StringVar(&q.Cursor, "cursor", "", "go on at `CURSOR`, where an earlier list ended")
	flags.BoolVarP(&quiet, "quiet", "q", false, "ids only, a line each")
	cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(view.States, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// moment reads a time: a length of time ago, or RFC 3339.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, now.Location()); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("--%s %q is neither a length of time (90m, 24h) nor a time (2026-01-31, 2026-01-31T12:00:00Z)", flag, text)
}

// list shows up to q.Limit tasks, in as many pages as that takes.
func (p *program) list(ctx context.Context, c *client.Client, q client.TaskQuery, quiet bool) error {
	tasks := table{head: []string{"ID", "STATE", "TYPE", "WORK", "AGENT", "PROGRESS", "SUBMITTED", "NAME"}}
	left := q.Limit
	for {
		q.Limit = min(left, maxPage)
		page, err := c.Page(ctx, q)
		if err != nil {
			return err
		}
		if p.json() {
			if err := p.out.json(page.JSON); err != nil {
				return err
			}
		}
		for _, t := range page.Tasks {
			tasks.rows = append(tasks.rows, p.taskRow(t))
			if quiet && !p.json() {
				p.out.say("%s", visible(t.TaskID))
			}
		}
		left -= len(page.Tasks)
		if q.Cursor = page.NextCursor; q.Cursor == "" || left <= 0 || len(page.Tasks) == 0 {
			break
		}
	}
	switch {
	case p.json() || quiet:
	case len(tasks.rows) == 0:
		p.talk.say("no such tasks")
	default:
		p.out.table(tasks)
		if q.Cursor != "" && p.out.terminal {
			p.talk.say("there are more: --limit N, or --cursor %s", visible(q.Cursor))
		}
	}
	return nil
}

func (p *program) taskRow(t client.Task) []string {
	id, agent, done := t.TaskID, t.AgentID, ""
	if p.out.terminal {
		id = short(id)
	}
	if agent == "" {
		agent = t.Agent
	}
	switch {
	case view.Ended(t.State):
		if t.State == view.Failed && t.Result != nil {
			done = fmt.Sprintf("exit %d", t.Result.ExitCode)
		} else if t.State == view.Error && t.Error != nil {
			done = fmt.Sprint(t.Error.Code)
		}
	case t.Step != nil && t.ProgressPercent != nil:
		done = fmt.Sprintf("%d%% %s", *t.ProgressPercent, t.Step.Name)
	case t.ProgressPercent != nil:
		done = fmt.Sprintf("%d%%", *t.ProgressPercent)
	}
	if p.out.terminal {
		done = cut(done, 32)
	}
	return []string{id, t.State, t.AgentType, t.WorkType, agent, done, p.when(t.SubmittedAt), t.Name}
}
