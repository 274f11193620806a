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
	ctx, now := stops()
	err := command(ctx, now, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "agentrunner:", text)
		}
		os.Exit(exitCode(err)) // nowhere else
	}
}

// stops returns a context that ends with the first signal to stop, and a channel that is closed by the second. A third
// ends the program where it is; its supervisors end the work.
func stops() (ctx context.Context, now <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	second := make(chan struct{})
	heard := make(chan os.Signal, 2)
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM)
	go func() { // for as long as the program lives
		<-heard
		cancel()
		<-heard
		signal.Stop(heard)
		close(second)
	}()
	return ctx, second
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
