package cli

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/server"
)

func newUp(p *program) *cobra.Command {
	var acceptLoss bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run the orchestrator here, with its broker, until Ctrl-C",
		Long: "Run the orchestrator: the HTTP API, and a NATS broker of its own unless NATS_URL names one. Settings are the environment\n" +
			"variables that begin with ORCHESTRATOR_ (docs/settings.md). The first start makes the credential that the other commands use.",
		Example: "  orchestrator up\n  ORCHESTRATOR_DURABILITY=relaxed ORCHESTRATOR_STATE=/srv/chiffon orchestrator up",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := server.FromEnvironment()
			if err != nil {
				return fmt.Errorf("settings:\n%w", err)
			}
			cfg.AcceptLoss = acceptLoss
			s, err := server.Open(cmd.Context(), cfg, p.logger(cfg.LogLevel))
			if err != nil && cmd.Context().Err() != nil {
				return nil // asked to stop before it was up, and stopped: what it was about to fail at does not matter any more
			}
			if err != nil {
				return err
			}
			defer s.Close()
			return s.Run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&acceptLoss, "accept-loss", false, "go on with what the broker holds, although it held more")
	return cmd
}

// logger writes a daemon's log to stderr: text on a terminal, else JSON.
func (p *program) logger(level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if p.talk.terminal {
		return slog.New(slog.NewTextHandler(p.talk.w, opts))
	}
	return slog.New(slog.NewJSONHandler(p.talk.w, opts))
}
