package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/backup"
	"chiffon/orchestrator/server"
)

func newRestore(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE|-",
		Short: "Put a backup into an empty state directory, or an empty NATS",
		Long: "Put a backup into the state directory of an orchestrator that does not run (ORCHESTRATOR_STATE), or, with NATS_URL, into that\n" +
			"broker. There must be no data of Chiffon's yet, the file must be whole and of a format this program knows. All of it is\n" +
			"there afterwards, or nothing.",
		Example: `  ORCHESTRATOR_STATE=/srv/chiffon orchestrator restore /srv/backup/chiffon-2026-11-21.tar
  sudo -u chiffon ORCHESTRATOR_STATE=/var/lib/chiffon/orchestrator orchestrator restore - < chiffon.tar`,
		Args: arguments(1, 1, "FILE or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := server.FromEnvironment()
			if err != nil {
				return fmt.Errorf("settings:\n%w", err)
			}
			return p.restore(cmd.Context(), cfg, args[0])
		},
	}
}

func (p *program) restore(ctx context.Context, cfg server.Config, name string) error {
	f, done, err := seekable(name, p.in)
	if err != nil {
		return err
	}
	defer done()
	m, where, err := server.Restore(ctx, cfg, f, slog.New(slog.DiscardHandler))
	switch {
	case errors.Is(err, backup.ErrNotEmpty):
		return fmt.Errorf("%w: a backup is restored where nothing is; choose another state directory with ORCHESTRATOR_STATE, or move that away", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: restore as the user who runs the orchestrator", err)
	case err != nil:
		return fmt.Errorf("%s is not restored: %w", name, err)
	}
	if p.json() {
		return p.out.json(m)
	}
	p.out.say("restored %d messages of %d streams into %s; start the orchestrator", m.Messages(), len(m.Parts), visible(where))
	return nil
}
