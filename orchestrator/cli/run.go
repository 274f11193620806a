package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

func newRun(p *program) *cobra.Command {
	var f taskFlags
	var agentType string
	cmd := &cobra.Command{
		Use: "run [FLAGS] -- CMD [ARG…]",

		DisableFlagsInUseLine: true,

		Short: "Run one command on an agent's host",
		Long: "Run one command through the work type run_command, which the agent must offer. Its output comes as it is\n" +
			"written, and its exit code is this command's own: 0–255. 5 is also an error or time-out of the task, and 2 a cancelled\n" +
			"one: stderr says which.",
		Example: `  orchestrator run -- uptime
  orchestrator run --on site=attic -- systemctl status nginx
  orchestrator run --agent nas --max-duration 1m -- df -h / > disk.txt`,
		Args: arguments(1, -1, "-- CMD [ARG…]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			object, err := json.Marshal(map[string][]string{"argv": args})
			if err != nil {
				return err
			}
			s, err := f.submission(agentType, "run_command", object)
			if err != nil {
				return &mistake{cmd.CommandPath(), err}
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			return p.runCommand(cmd.Context(), c, s)
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows CMD is CMD's
	cmd.Flags().StringVar(&agentType, "type", "infra", "`TYPE` of the agent")
	f.add(cmd)
	return cmd
}

// runCommand hands in s, passes its output on and ends with its exit code.
func (p *program) runCommand(ctx context.Context, c *client.Client, s client.Submission) error {
	task, _, err := c.Submit(ctx, s)
	if err != nil {
		return err
	}
	id := task.TaskID
	out := p.out.foreign()
	own := &sieve{teller: &output{p: p, out: out}}
	var t teller = own
	if p.json() {
		t = eventLines{p}
	}
	task, err = p.story(ctx, c, id, t)
	own.tell(p.talk)
	if err := errors.Join(err, out.Close()); err != nil {
		return interrupted(err, short(id))
	}
	return commandExit(task)
}

// commandExit is the command's own exit code, with a word where the task ended in another way.
func commandExit(t client.Task) error {
	e := &Exit{text: fmt.Sprintf("task %s: %s", short(t.TaskID), outcome(t))}
	switch t.State {
	case view.Succeeded:
		return nil
	case view.Failed:
		e.Code, e.text = ExitFailed, ""
		if t.Result != nil && t.Result.ExitCode > 0 {
			e.Code = t.Result.ExitCode
		}
	case view.Cancelled:
		e.Code = ExitCancelled
	default:
		e.Code = ExitError
	}
	return e
}

// output shows what a task writes, byte by byte, and talks of everything else.
type output struct {
	p       *program
	out     io.WriteCloser
	only    int // the attempt that is wanted; 0 means all
	attempt int // that wrote last
	written int64
	gap     bool // it was said that something is missing
}

func (o *output) event(e client.Event) error {
	if o.only != 0 && e.Attempt != 0 && e.Attempt != o.only {
		return nil
	}
	switch e.Kind {
	case "status":
		return o.status(e)
	case "gap":
		o.gap = true
		o.p.talk.say("%s", gapText(e))
	case "end":
		return o.end(e)
	}
	return nil
}

func (o *output) status(e client.Event) error {
	step := stepOf(e)
	if step == nil || e.Void != "" {
		return nil
	}
	data, err := step.Bytes()
	if err != nil {
		o.p.talk.say("an output of %s can't be read: %s", visible(e.AgentID), visible(err.Error()))
		return nil
	}
	if len(data) == 0 {
		return nil
	}
	if o.attempt != 0 && e.Attempt != 0 && e.Attempt != o.attempt {
		o.p.talk.say("--- attempt %d on %s ---", e.Attempt, visible(e.AgentID))
		o.written = 0
	}
	o.attempt = e.Attempt
	o.written += int64(len(data))
	_, err = o.out.Write(data)
	return err
}

// end shows the output in the result when the statuses had none: an agent may send all of it there, and statuses expire before
// results do.
func (o *output) end(e client.Event) error {
	task, ok := e.Ended()
	if !ok || task.Result == nil || o.only != 0 && o.only != task.Attempt {
		return nil
	}
	if o.written == 0 || o.attempt != task.Attempt {
		data, err := resultBytes(task.Result)
		if err != nil {
			o.p.talk.say("the output in the result can't be read: %s", visible(err.Error()))
		}
		if missing := task.Result.OutputBytes - int64(len(data)); missing > 0 && len(data) > 0 {
			o.p.talk.say("the first %s are not kept any more", bytesOf(missing))
		}
		_, err = o.out.Write(data)
		return err
	}
	if missing := task.Result.OutputBytes - o.written; missing > 0 && !o.gap {
		o.p.talk.say("%s of the output are missing here; its last 256 KiB: orchestrator task watch %s", bytesOf(missing), visible(short(task.TaskID)))
	}
	return nil
}

func (o *output) note(text string) { o.p.talk.say("%s", visible(text)) }
func (o *output) tick()            {}
