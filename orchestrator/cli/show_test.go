package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/view"
)

func TestATaskThatNeverBeganUsedNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t, neverBegan(), survey(idA))
	if stdout, _, code := play(t, t.Context(), f, false, "", "task", "show", "f00"); code != 0 || strings.Contains(stdout, "used") {
		t.Errorf("exit %d, shown:\n%s", code, stdout)
	}
	if stdout, _, _ := play(t, t.Context(), f, false, "", "task", "show", "3f2a"); !strings.Contains(stdout, "used       2 s") {
		t.Errorf("of a task that did begin:\n%s", stdout)
	}
}

// Long lists of labels are shortened on a terminal, never in a pipe.
func TestManyLabels(t *testing.T) {
	t.Parallel()
	labels := map[string]string{}
	for i := range 100 {
		labels[fmt.Sprintf("key%02d", i)] = "value"
	}
	f := newFake(t)
	f.agents = []view.Agent{
		{AgentID: "nas", AgentType: "infra", State: "ready", Labels: labels},
		{AgentID: "pi", AgentType: "infra", State: "ready", Labels: map[string]string{"long": strings.Repeat("x", 99), "z": "1"}},
	}
	stdout, _, _ := play(t, t.Context(), f, true, "", "agent", "list")
	for _, want := range []string{"key00=value key01=value key02=value key03=value …, +96 more", "xxx… …, +1 more"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("on a terminal, %q is missing:\n%s", want, stdout)
		}
	}
	if stdout, _, _ := play(t, t.Context(), f, false, "", "agent", "list"); !strings.Contains(stdout, "key99=value") || strings.Contains(stdout, "…") {
		t.Errorf("in a pipe:\n%s", stdout)
	}
}

// An agent that is broken says why, and can't play with the terminal by that.
func TestABrokenAgentSaysWhy(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.agents = []view.Agent{{AgentID: "nas", AgentType: "infra", State: "broken", Detail: "disk full" + evil}}
	stdout, _, code := play(t, t.Context(), f, true, "", "agent", "show", "nas")
	if code != 0 || !strings.Contains(stdout, "\x1b["+red+"mbroken") || !strings.Contains(stdout, "disk fullx\\x1b[2J") {
		t.Errorf("exit %d: %q", code, stdout)
	}
}

// A moment that is over is not when anything begins next.
func TestNextAttemptIsNotInThePast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in    float64 // seconds after the failure, which was 3 s after the start
		shown bool
	}{"it is due": {1, false}, "it is to come": {7200, true}} {
		s := newStory(idA, "survey_host").started(1, 1).failedAttempt(3, 5001, "silent", 3+c.in)
		s.RetryAt = new(start.Add(time.Duration((3 + c.in) * float64(time.Second))))
		stdout, _, code := play(t, t.Context(), newFake(t, s), false, "", "task", "show", idA)
		if code != 0 || strings.Contains(stdout, "next attempt") != c.shown {
			t.Errorf("%s: exit %d\n%s", name, code, stdout)
		}
	}
}

// A pause of no length is none, and what is wrong with it is said.
func TestPauseOfNoLength(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"--for=0s": "--for 0s must be at least 1s", "--for=-1m": "--for -1m0s must be at least 1s", "--message=x": "give either --for or --until"} {
		if _, stderr, code := play(t, t.Context(), newFake(t), false, "", "agent", "pause", "nas", flag); code != ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q, want %q", flag, code, stderr, want)
		}
	}
}

// A long story does not break the table of breakers on a terminal, and is whole in a pipe.
func TestBreakersAreATable(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.reason = strings.Repeat("x", 200)
	for terminal, want := range map[bool]int{true: labelRoom, false: 200} {
		stdout, _, code := play(t, t.Context(), f, terminal, "", "breaker", "list")
		if n := strings.Count(stdout, "x"); code != 0 || n > want || n < want-5 {
			t.Errorf("terminal %v: exit %d, %d characters of the reason, want %d\n%s", terminal, code, n, want, stdout)
		}
	}
}
