package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// taskFlags say where, when and how a task is to run, whatever it does.
type taskFlags struct {
	priority, agent, name, requestID string
	on, needs, labels                []string
	maxDuration, queueTimeout        time.Duration
	given                            func(flag string) bool // it is on the command line, perhaps empty
}

func (f *taskFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.given = flags.Changed
	flags.StringVar(&f.priority, "priority", "", "`PRIORITY` critical, high, normal (default) or low")
	flags.StringVar(&f.agent, "agent", "", "`ID` of the one agent that may do it")
	flags.StringArrayVar(&f.on, "on", nil, "label `KEY=VALUE` that the agent must have; repeat for more")
	flags.StringSliceVar(&f.needs, "needs", nil, "`CAPABILITY` that the agent must have; repeat for more")
	flags.StringArrayVar(&f.labels, "label", nil, "label `KEY=VALUE` for the task; repeat for more")
	flags.StringVar(&f.name, "name", "", "`NAME` for the task, to find it again")
	flags.DurationVar(&f.maxDuration, "max-duration", 0, "`DURATION` that all attempts together may take (90s, 2h)")
	flags.DurationVar(&f.queueTimeout, "queue-timeout", 0, "`DURATION` after which a task that has not begun ends with an error")
	flags.StringVar(&f.requestID, "request-id", "", "`UUID` that makes a repetition of this command the same task")
	cmd.RegisterFlagCompletionFunc("priority",
		cobra.FixedCompletions([]string{"critical", "high", "normal", "low"}, cobra.ShellCompDirectiveNoFileComp))
}

// submission checks the flags, all of them at once, and makes a submission of them.
func (f *taskFlags) submission(agentType, workType string, params json.RawMessage) (client.Submission, error) {
	s := client.Submission{AgentType: agentType, WorkType: workType, Parameters: params, Priority: f.priority,
		Agent: f.agent, Needs: f.needs, Name: f.name, RequestID: f.requestID}
	var wrong []error
	check := func(flag string, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", flag, err))
		}
	}
	check("AGENT_TYPE", subject.AgentType(agentType).Check())
	if f.given("agent") { // also when it is empty: a variable that is not set must not mean any agent
		check("--agent", subject.AgentID(f.agent).Check())
	}
	_, err := subject.ParsePriority(f.priority)
	check("--priority", err)
	if f.given("request-id") {
		_, err := message.ParseUUID(f.requestID)
		check("--request-id", err)
	}
	var e1, e2 error
	s.On, e1 = wordPairs("on", f.on)
	s.Labels, e2 = wordPairs("label", f.labels)
	wrong = append(wrong, e1, e2)
	if f.given("needs") && (len(f.needs) == 0 || slices.Contains(f.needs, "")) {
		check("--needs", errors.New("a capability is empty"))
	}
	maxDuration, err := f.seconds("max-duration", f.maxDuration)
	check("--max-duration", err)
	if maxDuration > 0 {
		s.Hints = &view.Hints{MaxDurationSeconds: maxDuration}
	}
	s.QueueTimeout, err = f.seconds("queue-timeout", f.queueTimeout)
	check("--queue-timeout", err)
	return s, errors.Join(wrong...)
}

// seconds rounds up: a limit is never shorter than was asked for.
func (f *taskFlags) seconds(flag string, d time.Duration) (int, error) {
	if d <= 0 && f.given(flag) {
		return 0, fmt.Errorf("%v is too short; leave it out for no limit", d)
	}
	return int((d + time.Second - 1) / time.Second), nil
}

func newSubmit(p *program) *cobra.Command {
	var f taskFlags
	var params []string
	var file string
	var wait, follow bool
	cmd := &cobra.Command{
		Use:   "submit AGENT_TYPE WORK_TYPE",
		Short: "Hand in a task",
		Long: "Hand in a task: work of WORK_TYPE for an agent of AGENT_TYPE. Prints the task's id; it is stored when that is printed.\n" +
			"With --wait or --follow ends as the task ends: 0 succeeded, 2 cancelled, 3 failed, 5 error or timed out.",
		Example: `  orchestrator submit infra survey_host --follow
  orchestrator submit infra run_playbook -p playbook=site.yml -p extra_vars.version=1.4.0 --on site=attic
  orchestrator submit infra deploy_service -p 'services=["web","db"]' --name web --wait
  jq -n '{playbook: "site.yml"}' | orchestrator submit infra run_playbook --params -`,
		Args: arguments(2, 2, "AGENT_TYPE WORK_TYPE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			object, err := parameters(file, params, p.in)
			if err != nil {
				return &mistake{cmd.CommandPath(), err}
			}
			s, err := f.submission(args[0], args[1], object)
			if err != nil {
				return &mistake{cmd.CommandPath(), err}
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			return p.submit(cmd.Context(), c, s, wait, follow)
		},
	}
	cmd.Flags().StringArrayVarP(&params, "param", "p", nil, "parameter `KEY=VALUE`: dots nest (a.b=1); "+
		"numbers, true, false, null and JSON are read as such; repeat for more")
	cmd.Flags().StringVar(&file, "params", "", "`FILE` with the parameters as a JSON object (-: standard input); --param adds to it")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end without a word; --follow does so anyway")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show its progress and its result")
	f.add(cmd)
	return cmd
}

// submit hands in s and does what --wait and --follow ask for.
func (p *program) submit(ctx context.Context, c *client.Client, s client.Submission, wait, follow bool) error {
	task, known, err := c.Submit(ctx, s)
	if err != nil {
		return err
	}
	switch {
	case p.json() && !wait && !follow:
		return p.out.json(task)
	case !p.json():
		p.out.say("%s", visible(task.TaskID))
	}
	p.receipt(task, known, wait || follow)
	switch {
	case follow:
		task, err = p.follow(ctx, c, task.TaskID)
	case wait:
		id := task.TaskID
		if task, err = p.await(ctx, c, id); err != nil {
			return interrupted(err, id)
		}
		if p.json() {
			err = p.out.json(task)
		} else {
			p.talk.say("%s", p.talk.paint(stateColours[task.State], outcome(task)))
		}
	default:
		return nil
	}
	if err != nil {
		return err
	}
	return ended(task)
}

// receipt says on stderr what became of a submission.
func (p *program) receipt(task client.Task, known, stays bool) {
	if p.json() {
		return
	}
	id := short(task.TaskID)
	if known {
		p.talk.say("task %s was handed in before; its state is %s", visible(id), p.talk.state(task.State))
	}
	if !stays && task.WaitingFor != "" {
		p.talk.say("waiting for %s", visible(task.WaitingFor))
	}
	if !stays && p.talk.terminal {
		p.talk.say("watch it: orchestrator task watch %s", visible(id))
	}
}
