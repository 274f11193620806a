package server

import (
	"context"
	"fmt"
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
	state, err := settings.StateDir(cfg.State, "orchestrator")
	if err != nil {
		return m, "", err
	}
	release, err := lock(state)
	if err != nil {
		return m, "", err
	}
	defer release()
	if cfg.NATSURL != "" {
		m, err = restoreRemote(ctx, cfg, state, r, log)
		return m, cfg.NATSURL, err
	}
	m, err = backup.Into(ctx, filepath.Join(state, "broker"), r, log)
	return m, state, err
}

// restoreRemote puts a backup into a broker of somebody else's, which is then the one that the orchestrator knows.
func restoreRemote(ctx context.Context, cfg Config, state string, r io.ReadSeeker, log *slog.Logger) (m backup.Manifest, err error) {
	c, err := broker.Connect(broker.Config{URL: cfg.NATSURL, Name: "orchestrator restore", Log: log})
	if err != nil {
		return m, err
	}
	defer c.Close()
	m, err = backup.Restore(ctx, c, r, func(string) broker.Fit { return broker.Fit{Replicas: cfg.Replicas} })
	if err != nil {
		return m, err
	}
	// Last: a crash before it leaves a record that refuses the broker, never none.
	if err := witness(c, state, cfg, log).Begin(ctx); err != nil {
		return m, fmt.Errorf("all of it is in the broker, but what it holds is not recorded (\"orchestrator up --accept-loss\", once): %w", err)
	}
	return m, nil
}
