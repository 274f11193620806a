// Command orchestrator hands out work to agents and shows what becomes of it; docs/cli.md has its commands.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"chiffon/orchestrator/cli"
)

func main() {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup it outlives its terminal
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	err := cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "orchestrator:", text)
		}
		os.Exit(cli.ExitCode(err)) // nowhere else
	}
}
