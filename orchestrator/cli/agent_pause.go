package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/pkg/near"
)

func newAgentPause(p *program) *cobra.Command {
	var length time.Duration
	var until, message string
	cmd := &cobra.Command{
		Use:   "pause ID",
		Short: "Give an agent no new work for a while",
		Long: "Give an agent no new work for a while. What it runs goes on. It is resumed by itself when the time is over, or by\n" +
			"agent resume.",
		Example: `  orchestrator agent pause nas --for 1h --message "new disk"
  orchestrator agent pause nas --until 14:00`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.agentIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			how := client.Pause{Message: message}
			switch {
			case cmd.Flags().Changed("for") && until == "" && length < time.Second:
				return &mistake{cmd.CommandPath(), fmt.Errorf("--for %v must be at least 1s", length)}
			case (length != 0) == (until != ""):
				return &mistake{cmd.CommandPath(), errors.New("give either --for or --until")}
			case length != 0:
				how.ForSeconds = int((length + time.Second - 1) / time.Second)
			default:
				t, err := future(until, p.now())
				if err != nil {
					return &mistake{cmd.CommandPath(), err}
				}
				how.Until = &t
			}
			a, err := c.PauseAgent(cmd.Context(), args[0], how)
			return p.said(cmd.Context(), c, args[0], a, err)
		}),
	}
	flags := cmd.Flags()
	flags.DurationVar(&length, "for", 0, "`DURATION` of the pause (30m, 1h)")
	flags.StringVar(&until, "until", "", "`TIME` at which it ends: 14:00, a date, or RFC 3339")
	flags.StringVar(&message, "message", "", "`TEXT` for people: why")
	return cmd
}

func newAgentResume(p *program) *cobra.Command {
	return &cobra.Command{
		Use:               "resume ID",
		Short:             "Let an agent have work again",
		Long:              "Let an agent have work again: ends a pause and a drain. For a breaker that is open see breaker reset.",
		Example:           `  orchestrator agent resume nas`,
		Args:              arguments(1, 1, "ID"),
		ValidArgsFunction: p.agentIDs,
		RunE: p.with(func(cmd *cobra.Command, c *client.Client, args []string) error {
			a, err := c.ResumeAgent(cmd.Context(), args[0])
			if err == nil && !p.json() && a.Breaker == nil {
				word := "may have work again" // whether it takes some is its own word, which may still be another
				switch a.State {
				case "silent":
					word += " once it is heard"
				case "stopped":
					word += " once its runner is started again"
				}
				p.out.say("%s  %s", visible(a.AgentID), word)
				return nil
			}
			return p.said(cmd.Context(), c, args[0], a, err)
		}),
	}
}

// said shows what became of an agent, or why nothing did.
func (p *program) said(ctx context.Context, c *client.Client, id string, a client.Agent, err error) error {
	if err != nil {
		return p.noAgent(ctx, c, id, err)
	}
	if p.json() {
		return p.out.json(a)
	}
	word := p.out.state(a.State)
	if a.Detail != "" {
		word = visible(a.Detail) // which says it too
	}
	p.out.say("%s  %s", visible(a.AgentID), word)
	return nil
}

// noAgent adds to the error about an agent that nobody knows the name that may have been meant.
func (p *program) noAgent(ctx context.Context, c *client.Client, id string, err error) error {
	if r, ok := errors.AsType[*client.Problem](err); !ok || r.Status != http.StatusNotFound {
		return err
	}
	list, failed := c.Agents(ctx)
	if failed != nil {
		return err
	}
	var known []string
	for _, a := range list.Agents {
		known = append(known, a.AgentID)
	}
	if meant := near.Word(id, known, 3); meant != "" {
		return fmt.Errorf("%w; did you mean %s?", err, meant)
	}
	return fmt.Errorf("%w\n  see: orchestrator agent list", err)
}

// future reads a moment to come: a time of day, a date, or RFC 3339. A time of day that is over is tomorrow's.
func future(text string, now time.Time) (time.Time, error) {
	if t, err := time.ParseInLocation("15:04", text, now.Location()); err == nil {
		t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), 0, 0, now.Location())
		if !t.After(now) {
			t = t.AddDate(0, 0, 1)
		}
		return t, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		t, err := time.ParseInLocation(layout, text, now.Location())
		switch {
		case err != nil:
		case !t.After(now):
			return t, fmt.Errorf("--until %s is over", text)
		default:
			return t, nil
		}
	}
	return now, fmt.Errorf("--until %q is neither a time of day (14:00), a date (2026-01-31) nor RFC 3339", text)
}
