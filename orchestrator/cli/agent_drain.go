package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

func newAgentDrain(p *program) *cobra.Command {
	var deadline time.Duration
	var message string
	cmd := &cobra.Command{
		Use:   "drain ID",
		Short: "Let an agent finish what it runs, and give it nothing new",
		Long: "Let an agent finish what it runs, and give it nothing new. Shows each task as it ends and returns when the agent is empty;\n" +
			"what still runs at the deadline is stopped by its runner. It stays drained until agent resume. Ctrl-C stops watching, not\n" +
			"draining. With -o json: a line for each task, and at the end one for the agent.",
		Example: `  orchestrator agent drain nas --deadline 1h --message "moving house"
  orchestrator agent drain nas && ssh nas poweroff`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.agentIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			if deadline < 0 {
				return &mistake{cmd.CommandPath(), fmt.Errorf("--deadline %v must not be negative", deadline)}
			}
			how := client.Drain{DeadlineSeconds: int((deadline + time.Second - 1) / time.Second), Message: message}
			a, err := c.DrainAgent(cmd.Context(), args[0], how)
			if err != nil {
				return p.noAgent(cmd.Context(), c, args[0], err)
			}
			d := drain{p: p, c: c, agent: a, running: map[string]bool{}}
			if a.LastSeen != nil {
				d.heard = *a.LastSeen
			}
			return d.undisturbed(d.watch(cmd.Context()))
		}),
	}
	flags := cmd.Flags()
	flags.DurationVar(&deadline, "deadline", time.Hour, "`DURATION` (30m, 1h) after which what still runs is stopped; 0s at once")
	flags.StringVar(&message, "message", "", "`TEXT` for people: why")
	return cmd
}

// A drain is watched until its agent is empty.
type drain struct {
	p       *program
	c       *client.Client
	agent   client.Agent
	heard   time.Time       // the agent's latest heartbeat that was seen
	beats   int             // heartbeats since the drain began
	running map[string]bool // tasks that have not been shown as ended
	said    bool
	silence bool // that the agent is silent, or has stopped, was said
}

// drainLook is how often the agent is looked at.
const drainLook = 500 * time.Millisecond

func (d *drain) watch(ctx context.Context) error {
	id := d.agent.AgentID
	for {
		now, err := d.holds(ctx)
		if err != nil {
			return err
		}
		if err := d.show(ctx, now); err != nil {
			return err
		}
		silent, stopped := d.agent.State == "silent", d.agent.State == "stopped"
		switch {
		case d.agent.DrainUntil == nil:
			return fmt.Errorf("agent %s does not drain any more: somebody has resumed or paused it", id)
		case len(now) == 0 && (silent || stopped || d.beats >= 2): // the second is sent after the answer to the first, which tells it
			return d.empty()
		}
		if !d.silence && !d.p.json() {
			switch {
			case silent:
				d.p.talk.say("%s is silent: what it holds may go on until its runner is heard again, whatever the deadline is", visible(id))
			case stopped:
				d.p.talk.say("%s has stopped: what it holds is recorded when its runner is started again", visible(id))
			}
		}
		d.silence = silent || stopped
		t := time.NewTimer(drainLook)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		a, err := d.c.Agent(ctx, id)
		if err != nil {
			return err
		}
		if d.agent = a; a.LastSeen != nil && a.LastSeen.After(d.heard) {
			d.heard = *a.LastSeen
			d.beats++
		}
	}
}

// holds lists the tasks that the agent holds: by the log, and by its own word.
func (d *drain) holds(ctx context.Context) ([]string, error) {
	page, err := d.c.Page(ctx, client.TaskQuery{Agent: d.agent.AgentID, States: []string{view.Running, view.Paused, view.Cancelling}, Limit: 500})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, t := range page.Tasks {
		if t.AgentID == d.agent.AgentID {
			ids = append(ids, t.TaskID)
		}
	}
	for _, h := range d.agent.Running {
		if !slices.Contains(ids, h.TaskID) {
			ids = append(ids, h.TaskID)
		}
	}
	return ids, nil
}

// show says what has ended since the last look.
func (d *drain) show(ctx context.Context, now []string) error {
	if !d.said && !d.p.json() {
		d.p.talk.say("%s gets no new work; it holds %s until %s at the latest", visible(d.agent.AgentID), counted(len(now), "task"), d.p.whenPtr(d.agent.DrainUntil))
	}
	d.said = true
	var over []string
	for id := range d.running {
		if !slices.Contains(now, id) {
			over = append(over, id)
		}
	}
	slices.Sort(over)
	for _, id := range over {
		delete(d.running, id)
		t, err := d.c.Task(ctx, id)
		if err != nil {
			return err
		}
		if d.p.json() {
			if err := d.p.out.jsonLine(map[string]any{"task": t}); err != nil {
				return err
			}
			continue
		}
		word := outcome(t)
		if !view.Ended(t.State) {
			word = "not ended here, now " + d.p.out.state(t.State)
		}
		d.p.out.say("%s  %s", visible(t.TaskID), word)
	}
	for _, id := range now {
		d.running[id] = true
	}
	return nil
}

func (d *drain) empty() error {
	if d.p.json() {
		return d.p.out.jsonLine(map[string]any{"agent": d.agent})
	}
	id := visible(d.agent.AgentID)
	switch d.agent.State {
	case "silent":
		d.p.talk.say("%s is silent and holds nothing that is known of; it stays drained when it is back", id)
	case "stopped":
		d.p.talk.say("%s has stopped and holds nothing; it stays drained when it is started again", id)
	default:
		d.p.talk.say("%s is empty", id)
	}
	d.p.talk.say("  give it work again: orchestrator agent resume %s", id)
	return nil
}

// undisturbed tells who stops watching that the drain goes on.
func (d *drain) undisturbed(err error) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return &Exit{Code: ExitInterrupted, err: err, text: "interrupted; " + d.agent.AgentID + " goes on draining\n" +
		"  see it: orchestrator agent show " + d.agent.AgentID + "\n" +
		"  end it: orchestrator agent resume " + d.agent.AgentID}
}

// counted is a number of things in words.
func counted(n int, thing string) string {
	switch n {
	case 0:
		return "no " + thing
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
