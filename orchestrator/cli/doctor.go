package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/build"
)

func newDoctor(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong, and say the cure",
		Long: "Look for what is wrong, and say the cure: whether the server is found and answers, the credential, the versions, then what\n" +
			"the server finds itself. Ends with 1 if something is wrong.",
		Example: `  orchestrator doctor
  orchestrator doctor -o json | jq '.checks[] | select(.ok | not)'`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := p.examine(cmd.Context())
			if cmd.Context().Err() != nil {
				return context.Cause(cmd.Context())
			}
			if p.json() {
				if err := p.out.json(found); err != nil {
					return err
				}
			}
			well := true
			for _, c := range found.Checks {
				well = well && c.OK
				if !p.json() {
					p.finding(c)
				}
			}
			if !well {
				return &Exit{Code: ExitUsage}
			}
			return nil
		},
	}
}

func (p *program) finding(c view.Check) {
	mark := p.out.paint(green, "ok  ")
	if !c.OK {
		mark = p.out.paint(red, "FAIL")
	}
	p.out.say("%s  %s: %s", mark, visible(c.Name), visible(c.Detail))
	if c.Cure != "" {
		p.out.say("      %s", visible(c.Cure))
	}
}

// examine makes this side's checks and, when the server answers, adds its own.
func (p *program) examine(ctx context.Context) client.Checks {
	list := client.Checks{Version: build.Version()}
	add := func(name string, ok bool, detail, cure string) {
		list.Checks = append(list.Checks, view.Check{Name: name, OK: ok, Detail: detail, Cure: cure})
	}
	found, err := p.place().Find()
	_, lacking := errors.AsType[*client.NoCredential](err)
	switch {
	case err != nil && !lacking:
		add("settings", false, err.Error(), "")
		return list
	case lacking:
		add("credential", false, err.Error(), "")
	default:
		add("credential", true, "from "+found.TokenFrom, "")
	}
	c, err := client.New(found.URL, found.Credential)
	if err != nil {
		add("server", false, err.Error(), "")
		return list
	}
	theirs, err := c.Checks(ctx)
	_, answered := errors.AsType[*client.Problem](err)
	switch {
	case answered:
		add("server", false, fmt.Sprintf("%s (%s) answers: %v", found.URL, found.URLFrom, err), "")
	case err != nil:
		add("server", false, err.Error()+" (address from "+found.URLFrom+")", "start it with \"orchestrator up\", or say where it is with --server or ORCHESTRATOR_URL")
	default:
		add("server", true, fmt.Sprintf("%s (%s) answers", found.URL, found.URLFrom), "")
		add("versions", theirs.Version == build.Version(), fmt.Sprintf("here %s, server %s", build.Version(), theirs.Version), differs(theirs.Version))
		list.Version = theirs.Version
		list.Checks = append(list.Checks, theirs.Checks...)
	}
	return list
}

func differs(server string) string {
	if server == build.Version() {
		return ""
	}
	return "most things work all the same; bring both to one version"
}
