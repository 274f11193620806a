package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/view"
)

// beating has the fake's first agent heard again and again, until stop is called.
func (f *fake) beating(t *testing.T) {
	t.Helper()
	ctx, done := t.Context(), make(chan struct{})
	tick := time.NewTicker(50 * time.Millisecond)
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f.mu.Lock()
				f.agents[0].LastSeen = new(f.agents[0].LastSeen.Add(time.Second))
				f.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { tick.Stop(); <-done })
}

func TestDrainReturnsWhenTheAgentIsEmpty(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{"text": idA + "  succeeded after 3.0s\n", "json": `{"task":{`} {
		s := newStory(idA, "survey_host").started(1, 1)
		f := newFake(t, s)
		f.agents = agents()
		f.beating(t)
		ended := make(chan struct{})
		go func() { // a moment after the drain has begun
			defer close(ended)
			for range time.Tick(5 * time.Millisecond) {
				f.mu.Lock()
				if f.agents[0].DrainUntil != nil && f.looks > 2 {
					s.ended(4, view.Succeeded, 0, "")
					f.agents[0].Running = nil
					f.mu.Unlock()
					return
				}
				f.mu.Unlock()
			}
		}()
		stdout, stderr, code := play(t, t.Context(), f, false, "", "agent", "drain", "nas", "--deadline", "10m", "-o", output)
		<-ended
		if code != 0 || !strings.HasPrefix(stdout, want) {
			t.Errorf("-o %s: exit %d\n%s%s", output, code, stdout, stderr)
		}
		if output == "json" && strings.Count(stdout, "\n") != 2 || output == "text" && !strings.Contains(stderr, "nas is empty") {
			t.Errorf("-o %s:\n%s%s", output, stdout, stderr)
		}
	}
}

func TestCtrlCStopsWatchingNotDraining(t *testing.T) {
	t.Parallel()
	f := newFake(t, newStory(idA, "survey_host").started(1, 1))
	f.agents = agents()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			f.mu.Lock()
			watched := f.looks > 1
			f.mu.Unlock()
			if watched {
				cancel()
				return
			}
		}
	}()
	_, stderr, code := play(t, ctx, f, false, "", "agent", "drain", "nas")
	if code != ExitInterrupted || !strings.Contains(stderr, "nas goes on draining") || f.agents[0].DrainUntil == nil {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestDrainSaysThatTheAgentIsSilent(t *testing.T) {
	t.Parallel()
	f := newFake(t, newStory(idA, "survey_host").started(1, 1))
	f.agents = agents()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			f.mu.Lock()
			if f.agents[0].DrainUntil != nil {
				f.agents[0].State = "silent"
			}
			watched := f.looks > 3
			f.mu.Unlock()
			if watched {
				cancel()
				return
			}
		}
	}()
	if _, stderr, code := play(t, ctx, f, false, "", "agent", "drain", "nas"); code != ExitInterrupted || strings.Count(stderr, "nas is silent: what it holds may go on") != 1 {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// Two heartbeats are not waited for that will not come.
func TestDrainReturnsWhenTheAgentHasStopped(t *testing.T) {
	t.Parallel()
	f := newFake(t, newStory(idA, "survey_host").started(1, 1).ended(4, view.Succeeded, 0, ""))
	f.agents = agents()
	f.agents[0].Running = nil
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			f.mu.Lock()
			drains := f.agents[0].DrainUntil != nil
			if drains {
				f.agents[0].State = "stopped"
			}
			f.mu.Unlock()
			if drains {
				return
			}
		}
	}()
	if _, stderr, code := play(t, t.Context(), f, false, "", "agent", "drain", "nas"); code != 0 || !strings.Contains(stderr, "nas has stopped and holds nothing") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestDrainEndsWhenSomebodyResumes(t *testing.T) {
	t.Parallel()
	f := newFake(t, newStory(idA, "survey_host").started(1, 1))
	f.agents = agents()
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			f.mu.Lock()
			if f.looks > 1 {
				f.agents[0].DrainUntil = nil
				f.mu.Unlock()
				return
			}
			f.mu.Unlock()
		}
	}()
	if _, stderr, code := play(t, t.Context(), f, false, "", "agent", "drain", "nas"); code != ExitUsage || !strings.Contains(stderr, "does not drain any more") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}
