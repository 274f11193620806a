package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

func newAgent(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "List, show, pause and drain agents",
		Example: `  orchestrator agent list
  orchestrator agent show nas
  orchestrator agent pause nas --for 1h --message "new disk"`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(newAgentList(p), newAgentShow(p), newAgentWhy(p), newAgentPause(p), newAgentResume(p), newAgentDrain(p))
	return cmd
}

func newAgentList(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the agents and what they do",
		Long:  "List the agents and what they do. In a pipe: a line each, cells separated by tabs, times as RFC 3339.",
		Example: `  orchestrator agent list
  orchestrator agent list -o json | jq -r '.agents[].agent_id'`,
		Args: arguments(0, 0, "no arguments"),
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			list, err := c.Agents(cmd.Context())
			if err != nil {
				return err
			}
			if p.json() {
				return p.out.json(list.JSON)
			}
			if len(list.Agents) == 0 {
				p.talk.say("no agents: start one with \"agentrunner run\"")
				return nil
			}
			t := table{head: []string{"ID", "STATE", "TYPE", "BUSY", "HOST", "VERSION", "LAST SEEN", "LABELS", "DETAIL"}}
			for _, a := range list.Agents {
				t.rows = append(t.rows, []string{a.AgentID, a.State, a.AgentType, fmt.Sprintf("%d/%d", len(a.Running), a.Slots),
					a.Host, a.Version, p.whenPtr(a.LastSeen), p.fewPairs(a.Labels), p.fewWords(a.Detail)})
			}
			p.out.table(t)
			return nil
		}),
	}
}

// labelRoom is how many characters of labels a row of a table has on a terminal.
const labelRoom = 48

// fewPairs is pairs, on a terminal only as many as a row has room for.
func (p *program) fewPairs(m map[string]string) string {
	all := pairs(m)
	if !p.out.terminal || utf8.RuneCountInString(all) <= labelRoom {
		return all
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		next := append(list, cut(k+"="+m[k], labelRoom))
		if utf8.RuneCountInString(strings.Join(next, " ")) > labelRoom {
			break
		}
		list = next
	}
	text := strings.Join(list, " ")
	if more := len(m) - len(list); more > 0 {
		text += fmt.Sprintf(" …, +%d more", more)
	}
	return text
}

// fewWords is a text, on a terminal only as much as a row has room for.
func (p *program) fewWords(text string) string {
	if !p.out.terminal {
		return text
	}
	return cut(text, labelRoom)
}

func newAgentShow(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show an agent and the work that it offers",
		Example: `  orchestrator agent show nas
  orchestrator agent show nas -o json | jq '.work_types[].parameters'`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.agentIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			a, err := c.Agent(cmd.Context(), args[0])
			if err != nil {
				return p.noAgent(cmd.Context(), c, args[0], err)
			}
			if p.json() {
				return p.out.json(a)
			}
			p.showAgent(a)
			return nil
		}),
	}
}

func (p *program) showAgent(a client.Agent) {
	p.out.facts([][2]string{
		{"agent", visible(a.AgentID)},
		{"type", visible(a.AgentType)},
		{"state", p.out.state(a.State)},
		{"detail", visible(a.Detail)},
		{"resumes", p.whenPtr(a.PausedUntil)},
		{"stops", p.whenPtr(a.DrainUntil)},
		{"breaker", visible(p.breaker(a.Breaker))},
		{"host", visible(a.Host)},
		{"version", visible(a.Version)},
		{"busy", fmt.Sprintf("%d of %d slots", len(a.Running), a.Slots)},
		{"running", visible(holdings(a.Running))},
		{"capabilities", visible(strings.Join(a.Capabilities, " "))},
		{"labels", visible(pairs(a.Labels))},
		{"resources", resources(a.Resources)},
		{"first seen", p.when(a.FirstSeen)},
		{"last seen", p.whenPtr(a.LastSeen)},
	})
	if len(a.WorkTypes) == 0 {
		return
	}
	p.out.say("")
	work := table{head: []string{"WORK", "ATTEMPTS", "DESCRIPTION"}}
	for _, w := range a.WorkTypes {
		work.rows = append(work.rows, []string{w.Name, fmt.Sprint(w.Attempts), w.Description})
	}
	p.out.table(work)
}

// breaker is the state of an agent's breaker in a line; "" when it has not failed lately.
func (p *program) breaker(b *view.Breaker) string {
	if b == nil {
		return ""
	}
	text := fmt.Sprintf("%s after %s in a row", b.State, counted(b.Failures, "failure"))
	if b.Until != nil {
		text += ", asked " + p.when(*b.Until)
	}
	if b.Reason != "" {
		text += "; the latest: " + b.Reason
	}
	return text
}

func holdings(list []view.Holding) string {
	var ids []string
	for _, h := range list {
		ids = append(ids, short(h.TaskID))
	}
	return strings.Join(ids, " ")
}

func resources(r view.HostResources) string {
	var list []string
	if r.CPUs > 0 {
		list = append(list, fmt.Sprintf("%d processors, %.0f%% busy", r.CPUs, r.CPUPercent))
	}
	if r.MemoryMB > 0 {
		list = append(list, fmt.Sprintf("%d of %d MB of memory free", r.MemoryFreeMB, r.MemoryMB))
	}
	if r.GPUVRAMMB > 0 {
		list = append(list, fmt.Sprintf("%d MB of video memory", r.GPUVRAMMB))
	}
	return strings.Join(list, ", ")
}

// agentIDs completes ids of agents.
func (p *program) agentIDs(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	c, err := p.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := c.Agents(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, a := range list.Agents {
		if strings.HasPrefix(a.AgentID, begin) {
			ids = append(ids, visible(a.AgentID))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
