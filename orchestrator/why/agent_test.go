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
		"stopped": {agent: agent("attic", stoppedFor(time.Minute)), state: "stopped",
			because: []string{"attic ended in order at " + ago(time.Minute).Local().Format("15:04") + ": its runner was stopped", idle, nothing}, next: "started again on attic.lan"},
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

// What the log has told since the latest heartbeat counts before that.
func TestTaken(t *testing.T) {
	t.Parallel()
	const listed subject.TaskID = "77be0000-aaaa-8bbb-8ccc-000000000003"
	one := agent("attic", func(a *registry.Agent) {
		a.Slots, a.Running = 1, []message.Running{{TaskID: listed, Attempt: 1, Boot: 1}}
	})
	idle := agent("attic", func(a *registry.Agent) { a.Slots = 1 })
	at := func(id subject.TaskID, seen time.Time, p tasklog.Phase) ledger.Task {
		return task(p, func(t *ledger.Task) { t.ID, t.Seen = id, seen })
	}
	before, since := ago(10*time.Second), now
	for name, c := range map[string]struct {
		agent registry.Agent
		log   []ledger.Task
		full  bool
		slots string
	}{
		"it lists what it holds":                   {one, []ledger.Task{at(listed, before, tasklog.PhaseRunning)}, true, "1 of 1 slot taken: 77be0000 survey (attempt 1"},
		"it has begun since":                       {idle, []ledger.Task{at(listed, since, tasklog.PhaseRunning)}, true, "1 of 1 slot taken: 77be0000 survey (attempt 1"},
		"it has ended since":                       {one, []ledger.Task{at(listed, since, tasklog.PhaseEnded)}, false, "0 of 1 slot taken"},
		"it was taken away since":                  {one, []ledger.Task{at(listed, since, tasklog.PhaseQueued)}, false, "0 of 1 slot taken"},
		"it was taken away, and is still listed":   {one, []ledger.Task{at(listed, before, tasklog.PhaseQueued)}, true, "1 of 1 slot taken: 77be0000"},
		"it began long ago, and is not listed":     {idle, []ledger.Task{at(listed, before, tasklog.PhaseRunning)}, false, "0 of 1 slot taken"},
		"it lists what nobody knows":               {one, nil, true, "1 of 1 slot taken: 77be0000"},
		"one has ended since, and another begun":   {one, []ledger.Task{at(listed, since, tasklog.PhaseEnded), at(id, since, tasklog.PhaseRunning)}, true, "1 of 1 slot taken: 3f2a9c10"},
		"another agent holds what was listed here": {one, []ledger.Task{task(tasklog.PhaseRunning, func(t *ledger.Task) { t.ID, t.Seen, t.State.Holder = listed, since, "nas" })}, false, "0 of 1 slot taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := facts(c.agent)
			f.Held = func(id subject.AgentID) (held []ledger.Task) {
				for _, task := range c.log {
					if p := task.State.Phase; p == tasklog.PhaseRunning && task.State.Holder == string(id) {
						held = append(held, task)
					}
				}
				return held
			}
			f.Task = func(id subject.TaskID) (ledger.Task, bool) {
				i := slices.IndexFunc(c.log, func(task ledger.Task) bool { return task.ID == id })
				if i < 0 {
					return ledger.Task{}, false
				}
				return c.log[i], true
			}
			open := slices.DeleteFunc(slices.Clone(c.log), func(task ledger.Task) bool { return task.Ended() })
			if got := why.Agent(c.agent, open, f); !strings.HasPrefix(got.Because[1], c.slots) {
				t.Errorf("Agent = %q, want %s", got.Because, c.slots)
			}
			waits := task(tasklog.PhaseQueued, func(t *ledger.Task) { t.ID = "9" })
			if got := why.Task(waits, f).Because[0]; strings.Contains(got, "no free slot (1 of 1)") != c.full {
				t.Errorf("Task = %q, want full = %v", got, c.full)
			}
		})
	}
}
