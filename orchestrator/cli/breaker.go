package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
)

func newBreaker(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "breaker",
		Short: "See which agents fail again and again, and let them back",
		Long: "An agent that fails five times in a row gets no new work for a minute; then it is asked for a sign of life. What it runs goes\n" +
			"on. What counts is lost work, not the exit codes of commands.",
		Example: `  orchestrator breaker list
  orchestrator breaker reset nas`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newBreakerList(p), newBreakerReset(p))
	return cmd
}

func newBreakerList(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the breakers of all agents",
		Example: `  orchestrator breaker list
  orchestrator breaker list -o json | jq -r '.breakers[] | select(.state != "closed").agent_id'`,
		Args: arguments(0, 0, "no arguments"),
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			list, err := c.Breakers(cmd.Context())
			if err != nil {
				return err
			}
			if p.json() {
				return p.out.json(list.JSON)
			}
			if len(list.Breakers) == 0 {
				p.talk.say("no agents, so no breakers")
				return nil
			}
			t := table{head: []string{"AGENT", "BREAKER", "FAILURES", "SINCE", "ASKED", "LATEST FAILURE"}}
			for _, b := range list.Breakers {
				t.rows = append(t.rows, []string{b.AgentID, b.State, fmt.Sprint(b.Failures), p.whenPtr(b.Since), p.whenPtr(b.Until), p.fewWords(b.Reason)})
			}
			p.out.table(t)
			return nil
		}),
	}
}

func newBreakerReset(p *program) *cobra.Command {
	return &cobra.Command{
		Use:               "reset ID",
		Short:             "Close an agent's breaker: let it have work at once",
		Example:           `  orchestrator breaker reset nas`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.agentIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			b, err := c.ResetBreaker(cmd.Context(), args[0])
			if err != nil {
				return p.noAgent(cmd.Context(), c, args[0], err)
			}
			if p.json() {
				return p.out.json(b)
			}
			p.out.say("%s  %s", visible(b.AgentID), visible(b.State))
			return nil
		}),
	}
}
