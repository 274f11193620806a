package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// commands lists all commands in the order of the help. Each is made by a function in a file of its own.
func commands(p *program) []*cobra.Command {
	return []*cobra.Command{
		newUp(p),
		newDemo(p),
		newSubmit(p),
		newRun(p),
		newTask(p),
		newAgent(p),
		newBreaker(p),
		newValidate(p),
		newDoctor(p),
		newBackup(p),
		newRestore(p),
		newVersion(p),
	}
}

// the most used first; a variable of cobra's package, so set once
func init() { cobra.EnableCommandSorting = false }

const examples = `  orchestrator demo                                   try it: broker, runner and a real task
  orchestrator up                                     run it here
  orchestrator submit infra survey_host --follow      hand in a task and watch it
  orchestrator run -- uptime                          run one command on some host
  orchestrator task list --state running              what runs now
  orchestrator task logs 3f2a -f                      all output of a task, then what comes`

func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:           "orchestrator",
		Short:         "Hand out work to agents and see what becomes of it",
		Example:       examples,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE:          group,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if p.output != "text" && p.output != "json" {
				return &mistake{cmd.CommandPath(), fmt.Errorf("--output %q is neither text nor json", p.output)}
			}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&p.server, "server", "", "`URL` of the orchestrator; without it ORCHESTRATOR_URL, client.json or the one on this host")
	flags.StringVarP(&p.output, "output", "o", "text", "`FORMAT`: text, or json: what the API returned, streams as a line for each event")
	root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.SetHelpTemplate(helpTemplate)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &mistake{cmd.CommandPath(), err}
	})
	root.AddCommand(commands(p)...)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, completion
		}
	}
	return root
}

// completion is the function of the completion command itself, called when no shell below it was named.
func completion(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var shells []string
	for _, sub := range cmd.Commands() {
		shells = append(shells, sub.Name())
	}
	return &mistake{cmd.CommandPath(), fmt.Errorf("no completion for %q; there is one for %s", args[0], strings.Join(shells, ", "))}
}

// group is the function of a command that only has others below it.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	err := fmt.Errorf("there is no command %q", strings.TrimSpace(below(cmd)+" "+args[0]))
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		slices.Sort(near)
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(near, " or "))
	}
	return &mistake{cmd.CommandPath(), err}
}

// below is the path of a command without the program's own name.
func below(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
}

// arguments checks their number: what says which are wanted, as in the usage line. most -1 means any number.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return &mistake{cmd.CommandPath(), fmt.Errorf("%s wants %s", below(cmd), what)}
		case most >= 0 && len(args) > most:
			return &mistake{cmd.CommandPath(), fmt.Errorf("%s wants %s; %q is too much", below(cmd), what, args[most])}
		}
		return nil
	}
}

// helpTemplate puts examples first and the flags that every command has last.
const helpTemplate = `{{or .Long .Short | trimTrailingWhitespaces}}
{{if .HasExample}}
Examples:
{{.Example}}
{{end}}
Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}
{{if .HasAvailableSubCommands}}
Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableLocalFlags}}
Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}{{if .HasAvailableInheritedFlags}}
Flags of every command:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}
{{end}}`
