package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

// Who waits for a task is told that its runner is silent, and what an interruption leaves behind.
func TestWaitingForASilentRunner(t *testing.T) {
	t.Parallel()
	for args, goesOn := range map[string]string{
		"task cancel ca00 --wait":         "the cancel is recorded, and the task is being stopped all the same",
		"task watch ca00":                 "the task goes on",
		"submit infra survey_host --wait": "the task goes on",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			silent := stopping()
			f := newFake(t, silent)
			f.submit = func(map[string]any) *story { return silent }
			ctx, cancel := context.WithCancel(t.Context())
			var said strings.Builder
			listen := writer(func(text []byte) (int, error) {
				said.Write(text)
				if strings.Contains(string(text), "is cancelling (runner silent for 3m)") || strings.HasSuffix(string(text), "Z  cancelling (runner silent for 3m)\n") {
					cancel()
				}
				return len(text), nil
			})
			p := player(t, f, false, new(bytes.Buffer), new(bytes.Buffer))
			p.curious = time.Millisecond
			p.out.w, p.talk.w = listen, listen
			err := p.run(ctx, strings.Fields(args))
			if ExitCode(err) != ExitInterrupted || !strings.Contains(err.Error(), goesOn) {
				t.Errorf("exit %d, %v; said %s", ExitCode(err), err, said.String())
			}
		})
	}
}

// A waiting that lasts is said ever more rarely.
func TestSilences(t *testing.T) {
	t.Parallel()
	now := start
	p := &program{now: func() time.Time { return now }}
	task := client.Task{Task: view.Task{State: view.Running, SilentSince: &start}}
	var s silences
	said := 0
	for range 600 {
		now = now.Add(askAgain)
		if s.news(p, task) != "" {
			said++
		}
	}
	if said < 5 || said > 15 {
		t.Errorf("said %d times in %v, want about ten", said, now.Sub(start))
	}
	task.SilentSince = nil
	if news := s.news(p, task); news != "" {
		t.Errorf("of a task whose runner is heard: %q", news)
	}
	task.SilentSince = new(now.Add(-time.Minute))
	if news := s.news(p, task); news != "running (runner silent for 1m)" {
		t.Errorf("silent once more: %q", news)
	}
}

// The exit code of a cancel that waits says whether the work is known to be stopped.
func TestCancelExitCodes(t *testing.T) {
	t.Parallel()
	open := func(s *story) *story { s.State, s.Result, s.Error, s.EndedAt = view.Running, nil, nil, nil; return s }
	stopped := open(newStory(idA, "survey_host").started(1, 1).ended(3, view.Cancelled, 143, ""))
	first := open(newStory(idB, "survey_host").started(1, 1).ended(3, view.Succeeded, 0, ""))
	unknown := open(newStory(idC, "survey_host").started(1, 1).ended(3, view.Error, 5001, "stop not confirmed"))
	for args, want := range map[string]int{
		"3f2a":           ExitOK,
		"3f2b":           ExitOK,
		"77be":           ExitError,
		"77be 3f2a":      ExitError,
		"3f2a ffff":      ExitUsage,
		"77be ffff 3f2a": ExitError,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			a, b, c := *stopped, *first, *unknown
			stdout, stderr, code := play(t, t.Context(), newFake(t, &a, &b, &c), false, "", append([]string{"task", "cancel", "--wait"}, strings.Fields(args)...)...)
			if code != want || strings.Contains(args, "ffff") != strings.Contains(stderr, "cancel ffff: there is no task") {
				t.Errorf("exit %d, want %d\n%s%s", code, want, stdout, stderr)
			}
		})
	}
}

// A retry has no key of its own, so that the same one twice is one task; --again makes one.
func TestRetryKeys(t *testing.T) {
	t.Parallel()
	f := newFake(t, survey(idA))
	for _, args := range []string{"3f2a", "3f2a", "3f2a --again", "3f2a --again"} {
		if _, stderr, code := play(t, t.Context(), f, false, "", append([]string{"task", "retry"}, strings.Fields(args)...)...); code != 0 {
			t.Fatalf("retry %s: exit %d, %s", args, code, stderr)
		}
	}
	if k := f.keys; len(k) != 4 || k[0] != "" || k[1] != "" || k[2] == "" || k[2] == k[3] {
		t.Errorf("keys %q, want none twice, then two that differ", k)
	}
}

// Of several retries the exit code is that of the worst end.
func TestRetryExitCodes(t *testing.T) {
	t.Parallel()
	bad := newStory("bad00000-aaaa-8bbb-8ccc-000000000001", "survey_host").started(1, 1).ended(3, view.Failed, 2, "")
	bad.RetryOf = idA
	worse := newStory("bad00000-aaaa-8bbb-8ccc-000000000002", "survey_host").started(1, 1).ended(3, view.Error, 5001, "its time is up")
	worse.RetryOf = idB
	for args, want := range map[string]int{"3f2a": ExitFailed, "3f2b": ExitError, "3f2b 3f2a": ExitError, "3f2a c0": ExitFailed, "c0": ExitUsage} {
		if _, stderr, code := play(t, t.Context(), newFake(t, survey(idA), retried(idB), bad, worse), false, "", append([]string{"task", "retry", "--wait"}, strings.Fields(args)...)...); code != want {
			t.Errorf("retry %s: exit %d, want %d; %s", args, code, want, stderr)
		}
	}
}
