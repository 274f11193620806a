// Package cli is the orchestrator's command line: one file per command, results on stdout, talk on stderr.
// It does not know how tasks are kept or sent: all but up, demo and validate is a call of package client.
package cli

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
)

// Run carries out one command line. It returns nil or an *Exit whose code the program is to end with and whose text, unless empty, is
// for the user. When ctx ends, watching ends with ExitInterrupted; tasks go on.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	p := &program{
		in:      os.Stdin,
		out:     newScreen(stdout, os.Getenv),
		talk:    newScreen(stderr, os.Getenv),
		env:     os.Getenv,
		root:    os.Geteuid() == 0,
		now:     time.Now,
		curious: 2 * time.Second,
	}
	return p.run(ctx, args)
}

// program is one run of the command line.
type program struct {
	in        io.Reader
	out, talk *screen
	env       func(string) string
	root      bool
	now       func() time.Time
	curious   time.Duration // how long a task may wait before its follower asks why

	server string // --server
	output string // --output
	found  client.Found
}

func (p *program) run(ctx context.Context, args []string) error {
	root := newRoot(p)
	root.SetArgs(args)
	root.SetIn(p.in)
	root.SetOut(p.out.w)
	root.SetErr(p.talk.w)
	return p.exit(root.ExecuteContext(ctx))
}

// json reports whether results are wanted as JSON.
func (p *program) json() bool { return p.output == "json" }

// place is where the settings say the orchestrator is.
func (p *program) place() client.Place {
	home := p.env("HOME")
	return client.Place{
		Server:    p.server,
		URL:       p.env("ORCHESTRATOR_URL"),
		TokenFile: p.env("ORCHESTRATOR_TOKEN_FILE"),
		State:     cmp.Or(p.env("ORCHESTRATOR_STATE"), p.env("STATE_DIRECTORY")),
		Config:    cmp.Or(p.env("XDG_CONFIG_HOME"), filepath.Join(home, ".config")),
		Home:      cmp.Or(p.env("XDG_STATE_HOME"), filepath.Join(home, ".local", "state")),
		Root:      p.root,
	}
}

// client finds the server and its credential.
func (p *program) client() (*client.Client, error) {
	found, err := p.place().Find()
	p.found = found
	if err != nil {
		return nil, err
	}
	c, err := client.New(found.URL, found.Credential)
	if err != nil {
		return nil, err
	}
	c.Notice(func(text string) { p.talk.say("%s", visible(text)) })
	return c, nil
}

// with makes the function of a command that talks to the server.
func (p *program) with(do func(cmd *cobra.Command, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := p.client()
		if err != nil {
			return err
		}
		return do(cmd, c, args)
	}
}
