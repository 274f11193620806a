package server

import (
	"context"
	"fmt"
	"time"

	"chiffon/orchestrator/dispatch"
)

// storeEvery is how often the embedded broker is asked how it is. A store that is frozen is given restartAfter, then
// twice as long each time, up to restartRarely: one that cannot be helped is not to keep everybody from reading it.
const (
	storeEvery    = time.Second
	restartAfter  = 2 * time.Second
	restartRarely = 5 * time.Minute
)

// room says whether the embedded broker's store can take what is new; somebody else's broker looks after itself.
func (s *Server) room() func() error {
	if s.embedded == nil {
		return nil
	}
	return func() error {
		room, err := s.embedded.Room()
		if err == nil && room.Short() {
			return fmt.Errorf("%w: %d MiB are free below %s, %d MiB have to stay so", dispatch.ErrNoRoom, room.Free>>20, s.state, room.Reserve()>>20)
		}
		return nil // what cannot be asked is not known to be full: the broker itself will say so
	}
}

// keepStore starts the embedded broker anew when its store is frozen and there is room, until ctx ends. A store that
// could not be written takes nothing more, whatever becomes of the disk, before it is opened anew.
func (s *Server) keepStore(ctx context.Context) error {
	if s.embedded == nil {
		return nil
	}
	tick := time.NewTicker(storeEvery)
	defer tick.Stop()
	var frozen, short bool
	var since time.Time
	wait := restartAfter
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		room, err := s.embedded.Room()
		full := err == nil && room.Short()
		if full != short {
			short = full
			s.log.Warn("room for the broker's store", "enough", !short, "free_mib", room.Free>>20, "reserve_mib", room.Reserve()>>20)
		}
		ill := s.embedded.Health()
		switch {
		case ill == nil:
			if frozen {
				s.log.Info("broker's store is written again")
			}
			frozen, wait = false, restartAfter
			continue
		case !frozen:
			frozen, since = true, time.Now()
			s.log.Error("broker's store is frozen: nothing is recorded until it is opened anew, and for that it needs room",
				"error", ill, "free_mib", room.Free>>20, "reserve_mib", room.Reserve()>>20)
		}
		if short || time.Since(since) < wait {
			continue
		}
		s.log.Warn("broker is started anew: its store is frozen, and there is room", "error", ill)
		if err := s.embedded.Restart(); err != nil {
			s.log.Error("broker does not start", "error", err)
		}
		since, wait = time.Now(), min(2*wait, restartRarely)
	}
}
