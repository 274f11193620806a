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
	"chiffon/pkg/near"
)

// maxPage is the most that the API gives at once.
const maxPage = 500

func newTaskList(p *program) *cobra.Command {
	var f taskFilter
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
			q, err := f.query(p.now(), view.States)
			if err != nil {
				return &mistake{cmd.CommandPath(), err}
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			return p.list(cmd.Context(), c, q, quiet)
		},
	}
	f.add(cmd, view.States)
	cmd.Flags().StringVar(&f.q.Cursor, "cursor", "", "go on at `CURSOR`, where an earlier list ended")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "ids only, a line each")
	return cmd
}

// taskFilter says which tasks are meant.
type taskFilter struct {
	q            client.TaskQuery
	labels       []string
	since, until string
}

// add makes the flags; states are those that may be chosen.
func (f *taskFilter) add(cmd *cobra.Command, states []string) {
	last := len(states) - 1
	flags := cmd.Flags()
	flags.StringSliceVar(&f.q.States, "state", nil, "in `STATE` "+strings.Join(states[:last], ", ")+" or "+states[last]+"; repeat for more")
	flags.StringVar(&f.q.AgentType, "type", "", "for agents of `TYPE`")
	flags.StringVar(&f.q.Agent, "agent", "", "that agent `ID` runs or ran")
	flags.StringVar(&f.q.WorkType, "work-type", "", "of work type `TYPE`")
	flags.StringArrayVar(&f.labels, "label", nil, "with label `KEY=VALUE`; repeat for more")
	flags.StringVar(&f.since, "since", "", "submitted since `TIME`: 24h ago, a date, or RFC 3339")
	flags.StringVar(&f.until, "until", "", "submitted until `TIME`")
	flags.IntVar(&f.q.Limit, "limit", 50, "at most `N` tasks")
	cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
}

// query checks the flags, all of them at once.
func (f *taskFilter) query(now time.Time, states []string) (q client.TaskQuery, err error) {
	q = f.q
	var e1, e2, e3, e4, e5 error
	q.Labels, e1 = wordPairs("label", f.labels)
	q.Since, e2 = moment("since", f.since, now)
	q.Until, e3 = moment("until", f.until, now)
	for _, s := range q.States {
		if !slices.Contains(states, s) {
			e4 = fmt.Errorf("--state %q is none of %s%s", s, strings.Join(states, ", "), meant(s, states))
		}
	}
	if q.Limit < 1 {
		e5 = fmt.Errorf("--limit %d: want 1 or more", q.Limit)
	}
	return q, errors.Join(e1, e2, e3, e4, e5)
}

// meant asks whether a word that is none of those known is one of them misspelt.
func meant(word string, known []string) string {
	if w := near.Word(word, known, 2); w != "" {
		return "; did you mean " + w + "?"
	}
	return ""
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
	tasks := table{head: taskHead}
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

var taskHead = []string{"ID", "STATE", "TYPE", "WORK", "AGENT", "PROGRESS", "SUBMITTED", "NAME"}

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
	return []string{id, t.State + p.silence(t), t.AgentType, t.WorkType, agent, done, p.when(t.SubmittedAt), t.Name}
}
