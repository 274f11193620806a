package cli

import (
	"fmt"
	"strings"
	"testing"

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
