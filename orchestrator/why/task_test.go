package why_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/orchestrator/why"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

const id subject.TaskID = "3f2a9c10-aaaa-8bbb-8ccc-000000000001"

var now = time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// agent is one that was heard a second ago, of type infra, with two slots, that surveys hosts.
func agent(name subject.AgentID, change ...func(*registry.Agent)) registry.Agent {
	a := registry.Agent{Live: true, Heard: ago(time.Second), Heartbeat: message.Heartbeat{
		AgentID: name, AgentType: "infra", Host: string(name) + ".lan", Boot: 1, Slots: 2, State: message.StateReady,
		WorkTypes: []message.Offer{{Name: "survey", Attempts: 4}}, Resources: message.HostResources{MemoryMB: 2048},
	}}
	for _, c := range change {
		c(&a)
	}
	return a
}

func quietFor(d time.Duration) func(*registry.Agent) {
	return func(a *registry.Agent) { a.Live, a.Heard = false, ago(d) }
}

func stoppedFor(d time.Duration) func(*registry.Agent) {
	return func(a *registry.Agent) { a.Live, a.Heard, a.State = false, ago(d), message.StateStopped }
}

func full(a *registry.Agent) {
	a.Running = []message.Running{{TaskID: "77be0000-aaaa-8bbb-8ccc-000000000003", Attempt: 1, Boot: 1}, {TaskID: "x", Attempt: 1, Boot: 1}}
}

func facts(agents ...registry.Agent) why.Facts {
	return why.Facts{Now: now, Since: ago(time.Hour), Lease: 30 * time.Second, Grace: 5 * time.Second, Silence: 40 * time.Second,
		LostAfter: 24 * time.Hour, Agents: agents}
}

// task is one of type infra that surveys, in a phase.
func task(p tasklog.Phase, change ...func(*ledger.Task)) ledger.Task {
	t := ledger.Task{ID: id, Type: "infra", WorkType: "survey", Percent: -1, SubmittedAt: ago(time.Hour), Seen: ago(10 * time.Second),
		State: tasklog.State{Phase: p, Target: subject.Any}}
	if p == tasklog.PhaseHeld {
		t.State.Target = subject.Held
	}
	if p >= tasklog.PhaseRunning {
		t.State.Attempt, t.State.Allowed, t.State.Holder, t.State.Boot = 1, 4, "attic", 1
		t.StartedAt, t.FirstStart = ago(5*time.Minute), ago(5*time.Minute)
		t.Attempts = []ledger.Start{{Agent: "attic", At: t.StartedAt}}
	}
	for _, c := range change {
		c(&t)
	}
	return t
}

func once(t *ledger.Task) { t.State.Allowed = 1 }

func cancelled(c message.Cancel) func(*ledger.Task) {
	return func(t *ledger.Task) { t.Cancel, t.CancelAt, t.State.Cancel = &c, ago(3*time.Minute), &c }
}

func ends(k tasklog.Kind, by string) func(*ledger.Task) {
	return func(t *ledger.Task) { t.State.End, t.EndedBy, t.EndedAt = k, by, ago(3*time.Minute) }
}

func failedWith(code fault.Code, text string) func(*ledger.Task) {
	return func(t *ledger.Task) { t.Fault, t.State.Code = fault.New(code, "%s", text), code }
}

// What people are told of a task, by what is known of it: sentences, and what comes next.
func TestTask(t *testing.T) {
	t.Parallel()
	nas := func(id subject.AgentID) gate.Shut {
		if id == "nas" {
			return gate.Shut{Kind: gate.Paused, Text: "paused until 14:00: new disk", Until: now.Add(time.Hour)}
		}
		return gate.Shut{}
	}
	heard := func(subject.TaskID, int, uint64) time.Time { return ago(2 * time.Second) }
	for name, c := range map[string]struct {
		task    ledger.Task
		facts   why.Facts
		with    func(*why.Facts)
		because []string
		next    string
	}{
		"no agent": {task: task(tasklog.PhaseQueued),
			because: []string{"no agent of type infra has registered yet"}, next: "it begins when one registers: start a runner"},
		"an agent that nobody knows": {task: task(tasklog.PhaseQueued, func(t *ledger.Task) { t.Agent = "cellar" }), facts: facts(agent("nas")),
			because: []string{"agent cellar, the only one that may do it, has not been heard yet"}, next: "it begins when cellar is heard"},
		"each agent has its reason": {task: task(tasklog.PhaseHeld), facts: facts(agent("attic", quietFor(12*time.Minute)), agent("nas"), agent("pi", full)),
			with:    func(f *why.Facts) { f.Shut = nas },
			because: []string{"3 agents of type infra: attic silent for 12 m, nas paused until 14:00: new disk, pi has no free slot (2 of 2)"},
			next:    "it begins as soon as one of them has a free slot"},
		"too little memory": {task: task(tasklog.PhaseHeld, func(t *ledger.Task) { t.MaxMemoryMB = 4096 }), facts: facts(agent("pi")),
			because: []string{"1 agent of type infra: pi has 2048 MB of memory, the task may take 4096"}, next: "no agent there is can do it"},
		"no label, no capability": {task: task(tasklog.PhaseHeld, func(t *ledger.Task) { t.On, t.Needs = map[string]string{"site": "moon"}, []string{"gpu"} }),
			facts: facts(agent("pi")), because: []string{"1 agent of type infra: pi lacks label site=moon and capability gpu"}, next: "start one that fits"},
		"other work": {task: task(tasklog.PhaseHeld, func(t *ledger.Task) { t.WorkType = "bake" }), facts: facts(agent("pi")),
			because: []string{"1 agent of type infra: pi does not offer bake"}, next: "start one that fits"},
		"a broken agent": {task: task(tasklog.PhaseQueued), facts: facts(agent("pi", func(a *registry.Agent) { a.State, a.Detail = message.StateBroken, "no journal" })),
			because: []string{"1 agent of type infra: pi broken: no journal"}, next: "it begins when one of them gets work again"},
		"a refusal": {task: task(tasklog.PhaseQueued), facts: facts(agent("pi", func(a *registry.Agent) {
			a.Refused = []message.Refusal{{TaskID: id, Code: 5005, Message: "100 MB of memory are free"}}
		})), because: []string{"1 agent of type infra: pi handed it back: 5005: 100 MB of memory are free"}, next: "it is tried again by itself"},
		"a lapse": {task: task(tasklog.PhaseHeld, func(t *ledger.Task) {
			t.State.Hold = &message.Hold{Reason: "placement", Detail: "agent pi did not start it within a lease"}
		}), facts: facts(agent("pi")),
			with: func(f *why.Facts) {
				f.Lapsed = func(subject.TaskID, subject.AgentID) time.Time { return now.Add(20 * time.Second) }
			},
			because: []string{"1 agent of type infra: pi did not start it and is tried again in 20 s", "held for placement: agent pi did not start it within a lease"},
			next:    "it is tried again by itself"},
		"its time in the queue": {task: task(tasklog.PhaseQueued, func(t *ledger.Task) { t.Due = now.Add(3 * time.Minute) }), facts: facts(agent("pi", full)),
			because: []string{"1 agent of type infra: pi has no free slot (2 of 2)"}, next: "unless its time in the queue is over first, in 3 m"},
		"held for something else": {task: task(tasklog.PhaseHeld, func(t *ledger.Task) { t.State.Hold = &message.Hold{Reason: "approval"} }),
			because: []string{"it is held for approval"}, next: "it may begin when that is over"},
		"put to one agent": {task: task(tasklog.PhaseQueued, func(t *ledger.Task) { t.State.Target = "pi" }), facts: facts(agent("pi")),
			because: []string{"1 agent of type infra: pi is about to take it", "it was put to pi 10 s ago, which is to begin it within 30 s"}, next: "it begins within moments"},
		"the next attempt": {task: task(tasklog.PhaseFailed, failedWith(5002, "attic lost its lease"), func(t *ledger.Task) {
			t.State.Attempt, t.State.Allowed, t.State.Holder, t.State.RetryAt, t.Seen = 3, 4, "attic", now.Add(3*time.Second), ago(time.Second)
		}), because: []string{"attempt 4 of 4 starts in 3 s after 5002: attic lost its lease"}, next: "attempt 4 begins by itself"},
		"the next attempt, by a clock that is ahead": {task: task(tasklog.PhaseFailed, failedWith(5002, "attic lost its lease"), func(t *ledger.Task) {
			t.State.RetryAt, t.Seen = now.Add(time.Hour), now
		}), because: []string{"attempt 2 of 4 starts in 1 s after 5002: attic lost its lease"}, next: "attempt 2 begins by itself"},
		"not settled": {task: task(tasklog.PhaseFailed, failedWith(5001, "no sign of life"), func(t *ledger.Task) {
			t.State.Attempt, t.State.Allowed, t.State.Holder, t.State.Silent = 1, 4, "attic", true
		}), because: []string{"attempt 2 of 4 starts in 25 s after 5001: no sign of life", "attempt 1 was taken from attic for its silence: nothing is decided for another 25 s"}, next: "attempt 2 begins"},
		"running": {task: task(tasklog.PhaseRunning, func(t *ledger.Task) { t.Percent, t.Step = 40, view.Step{Number: 2, Name: "Disks"} }), facts: facts(agent("attic")),
			with:    func(f *why.Facts) { f.Listed = heard },
			because: []string{"attempt 1 of 4 runs on attic since 5 m, at step 2, Disks, 40 %", "last sign of life 2 s ago"}, next: "it ends when the work does"},
		"running, and limited": {task: task(tasklog.PhaseRunning, func(t *ledger.Task) { t.MaxDuration = 10 * time.Minute }), facts: facts(agent("attic")),
			with: func(f *why.Facts) { f.Listed = heard }, because: []string{"attempt 1 of 4", "last sign"}, next: "it is stopped in 5 m at the latest"},
		"heard, but not of this": {task: task(tasklog.PhaseRunning), facts: facts(agent("attic")),
			with: func(f *why.Facts) {
				f.Listed = func(subject.TaskID, int, uint64) time.Time { return ago(time.Minute) }
			},
			because: []string{"attempt 1 of 4", "attic is heard, but has not told of this attempt for 1 m"}, next: "it ends"},
		"its runner has stopped": {task: task(tasklog.PhaseRunning, once), facts: facts(agent("attic", stoppedFor(3*time.Minute))),
			because: []string{"attempt 1 of 1 runs on attic", "attic ended in order at " + ago(3*time.Minute).Local().Format("15:04") + " and has not told yet what became of this", "never begun a second time"},
			next:    "its outcome is recorded when attic is back"},
		"out of reach, once": {task: task(tasklog.PhaseRunning, once), facts: facts(agent("attic", quietFor(3*time.Minute))),
			because: []string{"attempt 1 of 1 runs on attic", "attic has been silent for 3 m: the work may still be running", "never begun a second time"},
			next:    "its outcome is recorded when attic is back; in 23 h 57 m it is given up as an error; to stop it: orchestrator task cancel 3f2a9c10"},
		"out of reach, repeatable": {task: task(tasklog.PhaseRunning), facts: facts(agent("attic", quietFor(35*time.Second))),
			because: []string{"attempt 1 of 4 runs on attic", "attic has been silent for 35 s: the work may still be running"},
			next:    "unless attic is heard, the attempt is taken from it in 5 s, and 35 s later another agent may begin the next"},
		"being stopped": {task: task(tasklog.PhaseCancelling, cancelled(message.Cancel{By: "admin", Reason: "wrong host", Signal: "INT", GraceSeconds: 120})),
			facts: facts(agent("attic")), with: func(f *why.Facts) { f.Listed = heard },
			because: []string{"admin asked 3 m ago to stop it: wrong host", "attic stops attempt 1 with INT, and kills what is left after 2 m, or before its lease of 30 s is over; last sign of life 2 s ago"},
			next:    "it ends when attic has stopped every process of it"},
		"being stopped, once": {task: task(tasklog.PhaseCancelling, once, cancelled(message.Cancel{By: "admin", GraceSeconds: 120})),
			facts: facts(agent("attic")), with: func(f *why.Facts) { f.Listed = heard },
			because: []string{"admin asked", "attic stops attempt 1, and kills what is left after 2 m; last sign of life 2 s ago"}, next: "it ends when attic"},
		"being stopped, out of reach, once": {task: task(tasklog.PhaseCancelling, once, cancelled(message.Cancel{By: "admin"})), facts: facts(agent("attic", quietFor(3*time.Minute))),
			because: []string{"admin asked 3 m ago to stop it", "runner silent for 3 m: nobody can say that attic has stopped it"}, next: "orchestrator task cancel 3f2a9c10 --force"},
		"being stopped, out of reach, by force": {task: task(tasklog.PhaseCancelling, once, cancelled(message.Cancel{By: "admin", Force: true})), facts: facts(agent("attic", quietFor(3*time.Minute))),
			because: []string{"admin asked", "runner silent"}, next: "in 25 s it ends as an error: stop not confirmed"},
		"being stopped, out of reach, repeatable": {task: task(tasklog.PhaseCancelling, cancelled(message.Cancel{By: "admin"})), facts: facts(agent("attic", quietFor(3*time.Minute))),
			because: []string{"admin asked", "runner silent"}, next: "in 25 s at the latest attic has stopped it by itself, for want of its lease"},
		"its time was over": {task: task(tasklog.PhaseCancelling, cancelled(message.Cancel{By: "orchestrator", Reason: "max_duration_seconds is over", Deadline: true})), facts: facts(agent("attic")),
			because: []string{"its time was over 3 m ago: max_duration_seconds is over", "attic stops"}, next: "it ends when"},
		"succeeded": {task: task(tasklog.PhaseEnded, ends(tasklog.Succeeded, "attic")),
			because: []string{"it succeeded 3 m ago, in attempt 1 of 4 on attic, which took 2 m"}},
		"succeeded before it was stopped": {task: task(tasklog.PhaseEnded, ends(tasklog.Succeeded, "attic"), cancelled(message.Cancel{By: "admin"})),
			because: []string{"it succeeded", "admin asked 3 m ago to stop it"}},
		"failed": {task: task(tasklog.PhaseEnded, ends(tasklog.Failed, "attic")), with: func(f *why.Facts) { f.Result = &view.Result{ExitCode: 2} },
			because: []string{"it failed with exit code 2 3 m ago", "is not tried again"}, next: "orchestrator task retry 3f2a9c10"},
		"cancelled in the queue": {task: task(tasklog.PhaseEnded, ends(tasklog.Cancelled, "orchestrator"), cancelled(message.Cancel{By: "admin", Reason: "no more"}), func(t *ledger.Task) {
			t.State.Attempt, t.Attempts = 0, nil
		}), because: []string{"it was cancelled 3 m ago, before any attempt", "admin asked 3 m ago to stop it: no more"}, next: "retry"},
		"poison": {task: task(tasklog.PhaseEnded, ends(tasklog.Error, "orchestrator"), failedWith(5002, "its runner died three times"), func(t *ledger.Task) { t.State.Deaths = 3 }),
			because: []string{"it ended with 5002 3 m ago", "3 runners died while they ran it", "an orchestrator recorded that, not attic"}, next: "retry"},
		"what came late, and what is void": {task: task(tasklog.PhaseEnded, ends(tasklog.Succeeded, "pi"), func(t *ledger.Task) {
			t.State.Attempt, t.State.Holder, t.State.Void = 2, "pi", 2
			t.Attempts = append(t.Attempts, ledger.Start{Agent: "pi", At: ago(4 * time.Minute)})
		}), with: func(f *why.Facts) {
			f.Late = []view.Event{{AgentID: "attic", Attempt: 1, Time: ago(time.Minute), Cause: "succeeded"}}
		}, because: []string{"it succeeded", "earlier attempts: 1 on attic (5 m ago)", "attic told the outcome of attempt 1 too late, 1 m ago: succeeded",
			"2 entries of its log do not count"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.facts.Now.IsZero() {
				c.facts = facts()
			}
			if c.with != nil {
				c.with(&c.facts)
			}
			got := why.Task(c.task, c.facts)
			begins := func(got, want string) bool { return strings.Contains(got, want) }
			if got.ID != string(id) || got.State != c.task.StateName() || !slices.EqualFunc(got.Because, c.because, begins) || !strings.Contains(got.Next, c.next) || c.next == "" && got.Next != "" {
				t.Errorf("Task = %q\n%q\nnext %q\nwant\n%q\nnext %q", got.State, got.Because, got.Next, c.because, c.next)
			}
		})
	}
}

func TestWaitingFor(t *testing.T) {
	t.Parallel()
	many := facts(agent("near", full))
	for i := range 9 {
		many.Agents = append(many.Agents, agent(subject.AgentID("far-"+string(rune('a'+i))), quietFor(time.Minute)))
	}
	for name, c := range map[string]struct {
		task  ledger.Task
		facts why.Facts
		want  string
	}{
		"no agent":             {task(tasklog.PhaseQueued), facts(), "an agent of type infra: none has registered yet"},
		"one that is away":     {task(tasklog.PhaseQueued, func(t *ledger.Task) { t.Agent = "away" }), facts(), "agent away, which has not been heard yet"},
		"one that has stopped": {task(tasklog.PhaseQueued, func(t *ledger.Task) { t.Agent = "pi" }), facts(agent("pi", stoppedFor(time.Minute))), "agent pi: pi ended in order at " + ago(time.Minute).Local().Format("15:04")},
		"one of its name":      {task(tasklog.PhaseQueued, func(t *ledger.Task) { t.Agent = "pi" }), facts(agent("pi", full)), "agent pi: pi has no free slot (2 of 2)"},
		"the next moment":      {task(tasklog.PhaseQueued), facts(agent("pi")), "the only agent of type infra: pi is about to take it"},
		"many, the near first": {task(tasklog.PhaseQueued), many, "one of 10 agents of type infra: far-a silent for 1 m, far-b silent for 1 m, far-c silent for 1 m, far-d silent for 1 m, near has no free slot (2 of 2) and 5 more"},
		"the stop":             {task(tasklog.PhaseCancelling), facts(agent("attic")), "agent attic to confirm the stop"},
		"nothing":              {task(tasklog.PhaseRunning), facts(agent("attic")), ""},
		"an answer":            {task(tasklog.PhaseRunning, func(t *ledger.Task) { t.State.Paused = true }), facts(agent("attic")), "a person's answer"},
		"an end":               {task(tasklog.PhaseEnded), facts(), ""},
	} {
		if got := why.WaitingFor(c.task, c.facts); got != c.want {
			t.Errorf("%s: WaitingFor = %q, want %q", name, got, c.want)
		}
	}
}

func TestSilentSince(t *testing.T) {
	t.Parallel()
	never := agent("attic", func(a *registry.Agent) { a.Live, a.Heard = false, time.Time{} })
	for name, c := range map[string]struct {
		task  ledger.Task
		facts why.Facts
		want  time.Time
	}{
		"heard":            {task(tasklog.PhaseRunning), facts(agent("attic")), time.Time{}},
		"silent":           {task(tasklog.PhaseRunning), facts(agent("attic", quietFor(time.Minute))), ago(time.Minute)},
		"while cancelling": {task(tasklog.PhaseCancelling), facts(agent("attic", quietFor(time.Minute))), ago(time.Minute)},
		"never heard":      {task(tasklog.PhaseRunning), facts(never), ago(time.Hour)},
		"not known":        {task(tasklog.PhaseRunning), facts(), ago(time.Hour)},
		"not heard yet":    {task(tasklog.PhaseRunning), why.Facts{Now: now, Since: ago(time.Second), Lease: 30 * time.Second}, time.Time{}},
		"over":             {task(tasklog.PhaseEnded), facts(agent("attic", quietFor(time.Minute))), time.Time{}},
	} {
		if got := why.SilentSince(c.task, c.facts); !got.Equal(c.want) {
			t.Errorf("%s: SilentSince = %v, want %v", name, got, c.want)
		}
	}
}
