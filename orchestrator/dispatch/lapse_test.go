package dispatch

import (
	"context"
	"sync"
	"testing"
	"time"

	"chiffon/pkg/message"
)

// Whoever lets a task lapse is tried again later and later, and only with that task.
func TestLapses(t *testing.T) {
	t.Parallel()
	var l lapses
	for n, want := range []time.Duration{lease, 2 * lease, 4 * lease, 8 * lease, 16 * lease, longestBackoff, longestBackoff} {
		l.note(task, "a", noon, lease, 0)
		if got := l.get(task, "a"); got.times != n+1 || got.until.Sub(noon) != want {
			t.Errorf("after %d: %+v, want %v", n+1, got, want)
		}
	}
	if got := l.get(task, "b"); got != (lapse{}) {
		t.Errorf("another agent has %+v", got)
	}
	l.forget(task)
	if got := l.get(task, "a"); got != (lapse{}) {
		t.Errorf("forgotten: %+v", got)
	}
}

// beating has agents heard, again and again until the test ends.
func (s *site) beating(beat func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(brisk.Heartbeat)
		defer tick.Stop()
		for ctx.Err() == nil {
			beat()
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	s.Cleanup(func() { cancel(); wg.Wait() })
}

// A task that one agent does not start goes to the other.
func TestLapsedGoesElsewhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.leads()
	attic := labelled("site", "attic")
	s.beating(func() {
		s.beat("a", 1, attic, func(hb *message.Heartbeat) { hb.Slots = 3 })
		s.beat("b", 1, attic)
	})
	id := s.submit(inTheAttic)
	s.until(id, "placed on a", at("a"))
	s.until(id, "placed on b", at("b"))
}
