package why_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/why"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// What people are told of an agent.
func TestAgent(t *testing.T) {
	t.Parallel()
	shut := func(kind, text string, in time.Duration) func(subject.AgentID) gate.Shut {
		s := gate.Shut{Kind: kind, Text: text}
		if in > 0 {
			s.Until = now.Add(in)
		}
		return func(subject.AgentID) gate.Shut { return s }
	}
	waits := task(tasklog.PhaseQueued)
	other := task(tasklog.PhaseHeld, func(t *ledger.Task) { t.WorkType = "bake" })
	const idle, nothing = "0 of 2 slots taken", "no task for agents of type infra waits"
	for name, c := range map[string]struct {
		agent   registry.Agent
		open    []ledger.Task
		shut    func(subject.AgentID) gate.Shut
		state   string
		because []string
		next    string
	}{
		"idle": {agent: agent("attic"), state: "ready", because: []string{"attic is ready: it was heard 1 s ago", idle, nothing}, next: "it begins the next task that it can do"},
		"about to begin": {agent: agent("attic"), open: []ledger.Task{waits}, state: "ready",
			because: []string{"is ready", idle, "1 task for agents of type infra waiting: 1 it could do"}, next: "it begins the next within moments"},
		"none that it can do": {agent: agent("attic"), open: []ledger.Task{other, other, task(tasklog.PhaseQueued, func(t *ledger.Task) { t.Agent = "nas" })}, state: "ready",
			because: []string{"is ready", idle, "3 tasks for agents of type infra waiting: 2 it could not: attic does not offer bake; 1 it could not: are for another agent by name"}, next: "that it can do"},
		"silent": {agent: agent("attic", quietFor(12*time.Minute)), state: "silent",
			because: []string{"attic is silent for 12 m: what it holds may still be running", idle, nothing}, next: "look whether its runner runs on attic.lan"},
		"broken": {agent: agent("attic", func(a *registry.Agent) { a.State, a.Detail = message.StateBroken, "no journal" }), state: "broken",
			because: []string{"attic lives, but cannot do its work: no journal", idle, nothing}, next: "mend what it names"},
		"paused": {agent: agent("attic"), shut: shut(gate.Paused, "paused until 14:00: new disk", time.Hour), state: "paused",
			because: []string{"attic is paused until 14:00: new disk", idle, nothing}, next: "it gets work again in 1 h, or after orchestrator agent resume attic"},
		"drained": {agent: agent("attic"), shut: shut(gate.Draining, "draining: move", 0), state: "draining",
			because: []string{"attic is draining: move", idle, nothing}, next: "orchestrator agent resume attic"},
		"breaker": {agent: agent("attic"), shut: shut(gate.Tripped, "held back after 5 failures", 40*time.Second), state: "paused",
			because: []string{"attic is held back after 5 failures", idle, nothing}, next: "it is asked for a sign of life in 40 s, or at once after orchestrator breaker reset attic"},
		"silent and paused": {agent: agent("attic", quietFor(time.Minute)), shut: shut(gate.Paused, "paused", 0), state: "silent",
			because: []string{"attic is silent for 1 m", "besides it is paused", idle, nothing}, next: "heard again"},
		"full": {agent: agent("attic", full), open: []ledger.Task{waits, task(tasklog.PhaseRunning, func(t *ledger.Task) {
			t.ID = "77be0000-aaaa-8bbb-8ccc-000000000003"
		})}, state: "ready", because: []string{"is ready", "2 of 2 slots taken: 77be0000 survey (attempt 1, since 5 m, running), x (attempt 1)", "1 it could do"}, next: "as soon as a slot is free"},
		"what only the log says": {agent: agent("attic"), open: []ledger.Task{task(tasklog.PhaseRunning)}, state: "ready",
			because: []string{"is ready", idle, "the log says that it holds 3f2a9c10 (attempt 1), its heartbeat does not", nothing}, next: "it begins"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts(c.agent)
			f.Shut = c.shut
			got := why.Agent(c.agent, c.open, f)
			if got.ID != "attic" || got.State != c.state || !slices.EqualFunc(got.Because, c.because, strings.Contains) || !strings.Contains(got.Next, c.next) {
				t.Errorf("Agent = %s\n%q\nnext %q\nwant %s\n%q\nnext %q", got.State, got.Because, got.Next, c.state, c.because, c.next)
			}
		})
	}
}
