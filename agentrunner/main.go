// Command agentrunner does the work that an orchestrator hands out, on the host it runs on; agentrunner --help lists its
// commands, docs/settings.md its settings.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"chiffon/agentrunner/runner"
)

// Exit codes.
const (
	exitDrained = 0
	exitConfig  = 1 // a mistake in settings, files or arguments
	exitRefused = 4 // this agent must not go on
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once; its supervisors end the work
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "agentrunner:", text)
		}
		os.Exit(exitCode(err)) // nowhere else
	}
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDrained
	case runner.Refused(err):
		return exitRefused
	}
	return exitConfig
}
