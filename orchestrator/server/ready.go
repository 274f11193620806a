package server

import (
	"context"
	"sync"
	"time"
)

// A balancer is somebody who asks again and again whether the server is ready, to send it work while it is. Before the
// server stops listening it has announceTime to hear that it is not. Who asks but once, at a start, is none.
type balancer struct {
	mu    sync.Mutex
	told  int       // times that somebody was told that it is ready
	after time.Time // the latest
}

const (
	announceTime = time.Second
	noBalancer   = time.Minute // who has not asked for so long does not any more
)

// note takes down that somebody was told.
func (b *balancer) note() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told++
	b.after = time.Now()
}

// wait gives a balancer, if there is one, the time to hear that the server is about to stop. It is over at once when ctx
// ends: then something has failed already.
func (b *balancer) wait(ctx context.Context) {
	b.mu.Lock()
	asks := b.told > 1 && time.Since(b.after) < noBalancer
	b.mu.Unlock()
	if !asks {
		return
	}
	select {
	case <-time.After(announceTime):
	case <-ctx.Done():
	}
}

// readOnly says why nothing new can be stored; nil when it can.
func (s *Server) readOnly() error {
	if s.embedded != nil {
		if err := s.embedded.Health(); err != nil {
			return err
		}
	}
	return s.dispatch.Room()
}
