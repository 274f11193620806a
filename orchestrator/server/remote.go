package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"chiffon/pkg/broker"
)

// witness is who remembers what the broker behind NATS_URL held.
func witness(c *broker.Client, state string, cfg Config, log *slog.Logger) *broker.Witness {
	return broker.NewWitness(c, broker.WitnessConfig{
		Path: filepath.Join(state, "remote.json"), URL: cfg.NATSURL, AcceptLoss: cfg.AcceptLoss, Log: log,
	})
}

// ensure makes what is missing on the broker. On one of somebody else's nothing is made before it is known that it still
// holds what it did: what is made there would hide that.
func (s *Server) ensure(ctx context.Context, limits broker.Limits) error {
	if s.embedded == nil {
		s.witness = witness(s.client, s.state, s.cfg, s.log)
		err := s.witness.Check(ctx)
		if errors.Is(err, broker.ErrStoreDamaged) {
			return fmt.Errorf("%w\n  let NATS_URL name the broker that it was, restore a backup into an empty one (\"orchestrator restore FILE\"; docs/backup.md), or go on with what is there: \"orchestrator up --accept-loss\", once", err)
		}
		if err != nil {
			return err
		}
	}
	if err := s.client.Ensure(ctx, limits, s.cfg.Replicas); err != nil {
		return fmt.Errorf("make the streams: %w", err)
	}
	if s.witness != nil {
		return s.witness.Begin(ctx)
	}
	return nil
}

// remember keeps the record of a broker of somebody else's until ctx ends.
func (s *Server) remember(ctx context.Context) error {
	if s.witness == nil {
		return nil
	}
	return s.witness.Run(ctx)
}
