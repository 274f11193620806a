package cli

import (
	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
)

func newTaskWhy(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Say why a task is where it is, and what comes next",
		Long: "Say in plain sentences why a task waits, runs, is not stopped yet or ended as it did, and what comes next: what happens by\n" +
			"itself, or what a person can do. Computed from the task's log and the agents as they are now.",
		Example:           `  orchestrator task why 3f2a`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.taskIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			w, err := c.WhyTask(cmd.Context(), args[0])
			return p.because(w, err)
		}),
	}
}

func newAgentWhy(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Say why an agent gets work, or none",
		Long: "Say in plain sentences whether an agent lives, what keeps new work from it and until when, what it holds, and why it gets\n" +
			"none of the tasks that wait.",
		Example:           `  orchestrator agent why nas`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.agentIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			w, err := c.WhyAgent(cmd.Context(), args[0])
			return p.because(w, err)
		}),
	}
}

// because shows reasons, the weightiest first.
func (p *program) because(w client.Why, err error) error {
	if err != nil {
		return err
	}
	if p.json() {
		return p.out.json(w)
	}
	p.out.say("%s  %s", visible(w.ID), p.out.state(w.State))
	for _, b := range w.Because {
		p.out.say("  %s", visible(b))
	}
	if w.Next != "" {
		p.out.say("next: %s", visible(w.Next))
	}
	return nil
}
