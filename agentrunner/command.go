package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/term"

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/runner"
	"chiffon/pkg/build"
	"chiffon/pkg/message"
)

const usage = `agentrunner does the work that an orchestrator hands out, on this host.

Usage:
  agentrunner run             register with the orchestrator and work until SIGTERM or Ctrl-C
  agentrunner check [FILE…]   judge work type files: those named, or all that this host would read
  agentrunner version         print the version
  agentrunner help            print this

Settings are the environment variables that begin with AGENTRUNNER_, and NATS_URL (docs/settings.md). SIGTERM lets running
work finish within AGENTRUNNER_DRAIN, a second one stops it within seconds; SIGHUP reads the work types again.
Exit codes: 0 done or drained, 1 a mistake in settings, files or arguments, 4 the orchestrator refuses this agent.
`

// command does what the arguments say, until ctx ends; now is closed when it is to end sooner still.
func command(ctx context.Context, now <-chan struct{}, args []string, stdout, stderr io.Writer) error {
	name := "help"
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	for _, a := range args {
		if a == "-h" || a == "--help" {
			name = "help"
		}
	}
	switch name {
	case "run", "version":
		if len(args) > 0 {
			return fmt.Errorf("%s takes no arguments, not %q; settings are environment variables (docs/settings.md)", name, args)
		}
		if name == "run" {
			return run(ctx, now, stderr)
		}
		fmt.Fprintf(stdout, "agentrunner %s, protocol %s, %s\n", build.Version(), message.Version, runtime.Version())
	case "check":
		return check(args, stdout)
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
	default:
		return fmt.Errorf("%q is no command; there are run, check, version and help", name)
	}
	return nil
}

func run(ctx context.Context, now <-chan struct{}, stderr io.Writer) error {
	cfg, err := runner.FromEnvironment()
	if err != nil {
		return fmt.Errorf("settings:\n%w", err)
	}
	if err := child.Inherit(); err != nil {
		return err
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	cfg.Reload, cfg.Now = reload, now
	return runner.Run(ctx, cfg, logger(stderr, cfg.LogLevel))
}

// logger writes text on a terminal, else JSON.
func logger(w io.Writer, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}
