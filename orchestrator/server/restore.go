package server

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"

	"chiffon/orchestrator/backup"
	"chiffon/pkg/broker"
	"chiffon/pkg/settings"
)

// Restore puts a backup where an orchestrator with these settings will look for its data, and says where that is.
// backup.ErrNotEmpty comes back when there is data already.
func Restore(ctx context.Context, cfg Config, r io.ReadSeeker, log *slog.Logger) (m backup.Manifest, where string, err error) {
	if cfg.NATSURL != "" {
		c, err := broker.Connect(broker.Config{URL: cfg.NATSURL, Name: "orchestrator restore", Log: log})
		if err != nil {
			return m, "", err
		}
		defer c.Close()
		m, err = backup.Restore(ctx, c, r, func(string) broker.Fit { return broker.Fit{Replicas: cfg.Replicas} })
		return m, cfg.NATSURL, err
	}
	state, err := settings.StateDir(cfg.State, "orchestrator")
	if err != nil {
		return m, "", err
	}
	release, err := lock(state)
	if err != nil {
		return m, "", err
	}
	defer release()
	m, err = backup.Into(ctx, filepath.Join(state, "broker"), r, log)
	return m, state, err
}
