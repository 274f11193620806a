package cli

import (
	"context"
	"sync"
	"time"

	"chiffon/orchestrator/client"
)

// silences says that a task's runner is silent, and then ever more rarely that it still is.
type silences struct{ said time.Duration }

// news is what is to be said of a task as it is now; "" when nothing is.
func (s *silences) news(p *program, t client.Task) string {
	text := p.silence(t)
	if text == "" {
		s.said = 0
		return ""
	}
	silent := p.now().Sub(*t.SilentSince)
	if s.said > 0 && silent < 2*s.said {
		return ""
	}
	s.said = max(silent, time.Second)
	return t.State + text
}

// await returns a task as it ended. While its runner is silent it says so on stderr.
func (p *program) await(ctx context.Context, c *client.Client, id string) (task client.Task, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		task, err = c.Wait(ctx, id)
	})
	look := time.NewTimer(p.curious)
	defer look.Stop()
	var s silences
	for {
		select {
		case <-done:
			return task, err
		case <-look.C:
			look.Reset(askAgain)
			if now, err := c.Task(ctx, id); err == nil {
				if news := s.news(p, now); news != "" {
					p.talk.say("task %s is %s", visible(short(id)), visible(news))
				}
			}
		}
	}
}
