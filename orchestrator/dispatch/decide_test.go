package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/why"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

const (
	lease = 30 * time.Second
	grace = 5 * time.Second
	task  = subject.TaskID("8d4cbb3a-3f55-4f1b-9a9e-2a3a4a5a6a7a")
)

// noon is when the worlds of the table are; every process in it has run for a day.
var noon = time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// somebody is a live agent of type infra with one slot that does "survey".
func somebody(id subject.AgentID, more ...func(*registry.Agent)) registry.Agent {
	a := registry.Agent{Heartbeat: message.Heartbeat{
		AgentID: id, AgentType: "infra", Boot: 7, Slots: 1, State: message.StateReady,
		WorkTypes: []message.Offer{{Name: "survey", Attempts: 4}},
	}, Heard: ago(time.Second), Live: true}
	for _, m := range more {
		m(&a)
	}
	return a
}

func silent(a *registry.Agent)    { a.Live, a.Heard = false, ago(time.Hour) }
func unheard(a *registry.Agent)   { a.Live, a.Heard = false, time.Time{} }
func draining(a *registry.Agent)  { a.State = message.StateDraining }
func broken(a *registry.Agent)    { a.State = message.StateBroken }
func unable(a *registry.Agent)    { a.WorkTypes = []message.Offer{{Name: "other"}} }
func reborn(a *registry.Agent)    { a.Boot = 9 }
func ofDesktop(a *registry.Agent) { a.AgentType = "desktop" }
func busy(a *registry.Agent)      { a.Running = []message.Running{{TaskID: "another", Attempt: 1, Boot: 7}} }
func holding(a *registry.Agent) {
	a.Running = []message.Running{{TaskID: task, Attempt: 1, Boot: 7}}
}
func roomy(a *registry.Agent) { a.Slots = 3 }
func full(since time.Duration) func(*registry.Agent) {
	return func(a *registry.Agent) { a.Full = ago(since) }
}
func inAttic(a *registry.Agent) {
	a.Labels, a.Capabilities = map[string]string{"site": "attic"}, []string{"gpu"}
}

func small(a *registry.Agent)   { a.Resources.MemoryMB, a.Resources.MemoryFreeMB = 1000, 900 }
func large(a *registry.Agent)   { a.Resources.MemoryMB, a.Resources.MemoryFreeMB = 9000, 900 }
func graphic(a *registry.Agent) { large(a); a.Resources.GPUVRAMMB = 8000 }
func refusing(a *registry.Agent) {
	a.Refused = []message.Refusal{{TaskID: task, Code: fault.ResourceLimitExceeded, Message: "it has too little memory"}}
}
func pausedA(d time.Duration) map[subject.AgentID]gate.Shut {
	return map[subject.AgentID]gate.Shut{"a": {Kind: gate.Paused, Until: noon.Add(d)}}
}

// What a task of the table is, to begin with.
func held(t *ledger.Task) {
	t.State.Phase, t.State.Target, t.State.Hold = tasklog.PhaseHeld, subject.Held, &message.Hold{Reason: placement}
}
func queued(t *ledger.Task) { t.State.Phase, t.State.Target = tasklog.PhaseQueued, subject.Any }
func running(t *ledger.Task) {
	t.State.Phase, t.State.Target = tasklog.PhaseRunning, subject.Any
	t.State.Attempt, t.State.Allowed, t.State.Holder, t.State.Boot = 1, 4, "a", 7
	t.StartedAt, t.FirstStart, t.Begun = ago(time.Minute), ago(time.Minute), ago(time.Minute)
}
func failed(t *ledger.Task) {
	running(t)
	t.State.Phase, t.State.Code, t.State.RetryAt = tasklog.PhaseFailed, fault.AgentUnavailable, ago(0)
}
func cancelling(t *ledger.Task) {
	running(t)
	t.State.Phase, t.State.Cancel = tasklog.PhaseCancelling, &message.Cancel{By: "admin"}
}

// And what is special about it.
func once(t *ledger.Task)       { t.State.Allowed = 1 }
func last(t *ledger.Task)       { t.State.Attempt = 4 }
func isSilent(t *ledger.Task)   { t.State.Silent = true }
func asksForA(t *ledger.Task)   { t.Agent = "a" }
func urgently(t *ledger.Task)   { t.State.Priority = subject.Critical }
func placedOnA(t *ledger.Task)  { t.State.Target = "a" }
func placedOnB(t *ledger.Task)  { t.State.Target = "b" }
func hungry(t *ledger.Task)     { t.MaxMemoryMB = 2000 }
func drawing(t *ledger.Task)    { t.GPUVRAMMB = 4000 }
func expired(t *ledger.Task)    { t.Due = ago(time.Second) }
func forced(t *ledger.Task)     { t.State.Cancel.Force = true }
func byDeadline(t *ledger.Task) { t.State.Cancel.Deadline, t.State.Cancel.Reason = true, "over" }
func onAttic(t *ledger.Task)    { t.On, t.Needs = map[string]string{"site": "attic"}, []string{"gpu"} }
func briefly(t *ledger.Task)    { t.MaxDuration = 10 * time.Second }
func retryAt(d time.Duration) func(*ledger.Task) {
	return func(t *ledger.Task) { t.State.RetryAt = noon.Add(d) }
}
func since(d time.Duration) func(*ledger.Task) {
	return func(t *ledger.Task) { t.Seen = ago(d) }
}

type situation struct {
	task      []func(*ledger.Task)
	agents    []registry.Agent
	listed    time.Duration // ago; 0 is never
	delivered uint64
	acked     uint64
	requeued  int
	started   time.Duration // how long the process's timers run; 0 is a day
	taken     map[string]int
	placed    map[ledger.Placing]int
	lapsed    map[subject.AgentID]lapse
	shut      map[subject.AgentID]gate.Shut
	want      string // "" is nothing
}

// String shows an action as the table has it.
func (a action) String() string {
	s := string(a.kind)
	if a.target != "" {
		s += " " + a.target
	}
	if a.fault != nil {
		s += fmt.Sprintf(" %d", a.fault.Code)
	}
	if a.silent {
		s += " silent"
	}
	if a.gone {
		s += " gone"
	}
	if a.cancel != nil && a.cancel.Deadline {
		s += " deadline"
	}
	return s
}

var situations = map[string]situation{
	// Placement.
	"held, and nobody is there":                      {task: do(held)},
	"held, and one who can is free":                  {task: do(held), agents: all(somebody("a")), want: "queued a"},
	"held, and who can has no slot left: it is next": {task: do(held), agents: all(somebody("a")), taken: map[string]int{"a": 1}, want: "queued a"},
	"held, and another is next there":                {task: do(held), agents: all(somebody("a")), taken: map[string]int{"a": 2}, placed: map[ledger.Placing]int{{Agent: "a", Priority: subject.Normal}: 1}},
	"held, urgent, and another is next there":        {task: do(held, urgently), agents: all(somebody("a")), taken: map[string]int{"a": 2}, placed: map[ledger.Placing]int{{Agent: "a", Priority: subject.Normal}: 1}, want: "queued a"},
	"held, and one without slots is there":           {task: do(held), agents: all(somebody("a", func(a *registry.Agent) { a.Slots = 0 }))},
	"placed on one who has been full":                {task: do(queued, placedOnA, since(time.Hour)), agents: all(somebody("a", busy, full(lease)))},
	"placed on one who was full a lease ago":         {task: do(queued, placedOnA, since(time.Hour)), agents: all(somebody("a", full(lease+1))), want: "held held"},
	"placed on one who is full, another is free":     {task: do(queued, placedOnA, since(time.Minute)), agents: all(somebody("a", busy, full(1)), somebody("b")), taken: map[string]int{"a": 2}, want: "held held"},
	"placed on one who is full, so is another":       {task: do(queued, placedOnA, since(time.Minute)), agents: all(somebody("a", busy, full(1)), somebody("b", busy)), taken: map[string]int{"a": 2, "b": 1}},
	"held, and the freest gets it":                   {task: do(held), agents: all(somebody("a"), somebody("b", roomy)), want: "queued b"},
	"held, and who is busy by the log is not it":     {task: do(held), agents: all(somebody("a"), somebody("b", roomy)), taken: map[string]int{"b": 3}, want: "queued a"},
	"held, and who can is silent":                    {task: do(held), agents: all(somebody("a", silent))},
	"held, and who can drains":                       {task: do(held), agents: all(somebody("a", draining))},
	"held, and who can is broken":                    {task: do(held), agents: all(somebody("a", broken))},
	"held, and who can has just let it lapse":        {task: do(held), agents: all(somebody("a")), lapsed: map[subject.AgentID]lapse{"a": {times: 1, until: noon.Add(1)}}},
	"held, and who can has let it lapse long ago":    {task: do(held), agents: all(somebody("a")), lapsed: map[subject.AgentID]lapse{"a": {times: 1, until: noon}}, want: "queued a"},
	"held, and the freest has let it lapse":          {task: do(held), agents: all(somebody("a", roomy), somebody("b")), lapsed: map[subject.AgentID]lapse{"a": {times: 1, until: noon}}, want: "queued b"},
	"held, and who is there cannot":                  {task: do(held), agents: all(somebody("a", unable))},
	"held, and who can is of another type":           {task: do(held), agents: all(somebody("a", ofDesktop))},
	"held for an agent, and another is free":         {task: do(held, asksForA), agents: all(somebody("b"))},
	"held for labels that nobody has":                {task: do(held, onAttic), agents: all(somebody("a"))},
	"held for labels that one has":                   {task: do(held, onAttic), agents: all(somebody("a", roomy), somebody("b", inAttic)), want: "queued b"},
	"held for other reasons than a place":            {task: do(held, func(t *ledger.Task) { t.State.Hold.Reason = "approval" }), agents: all(somebody("a"))},
	"held, and its time in the queue is over":        {task: do(held, expired), agents: all(somebody("a")), want: "error 5001"},
	"for any, and one of the type does not offer":    {task: do(queued), agents: all(somebody("a"), somebody("b", unable)), want: "held held"},
	"for any, and a silent one does not offer":       {task: do(queued), agents: all(somebody("a"), somebody("b", unable, silent))},
	"placed on one who has not started it yet":       {task: do(queued, placedOnA, since(lease)), agents: all(somebody("a"))},
	"placed on one who does not start it":            {task: do(queued, placedOnA, since(lease+1)), agents: all(somebody("a")), want: "held held"},
	"asked of one who does not start it":             {task: do(queued, placedOnA, asksForA, since(time.Hour)), agents: all(somebody("a", silent))},

	// What agents have, what they refuse, and who gets nothing.
	"held, and who can has too little memory":            {task: do(held, hungry), agents: all(somebody("a", small))},
	"held, and one has enough memory":                    {task: do(held, hungry), agents: all(somebody("a", small, roomy), somebody("b", large)), want: "queued b"},
	"held, and one says nothing of its memory":           {task: do(held, hungry), agents: all(somebody("a")), want: "queued a"},
	"held, and who can has no graphics card":             {task: do(held, drawing), agents: all(somebody("a", large))},
	"held, and one has a graphics card":                  {task: do(held, drawing), agents: all(somebody("a", large, roomy), somebody("b", graphic)), want: "queued b"},
	"for any, and one of the type is too small":          {task: do(queued, hungry), agents: all(somebody("a", small), somebody("b", large)), want: "held held"},
	"for any, and a silent one is too small":             {task: do(queued, hungry), agents: all(somebody("a", small, silent), somebody("b", large))},
	"for any, all of the type are large enough":          {task: do(queued, hungry), agents: all(somebody("a", large), somebody("b", large))},
	"held, nobody ever had so much, for a lease":         {task: do(held, hungry, since(lease)), agents: all(somebody("a", small), somebody("b", small, silent))},
	"held, nobody ever had so much, for longer":          {task: do(held, hungry, since(lease+1)), agents: all(somebody("a", small), somebody("b", small, silent)), want: "error 5005"},
	"held, a silent one had so much once":                {task: do(held, hungry, since(time.Hour)), agents: all(somebody("a", small), somebody("b", large, silent))},
	"held, one of another type has so much":              {task: do(held, hungry, since(lease+1)), agents: all(somebody("a", small), somebody("b", large, ofDesktop)), want: "error 5005"},
	"held, and nobody was ever there":                    {task: do(held, hungry, since(time.Hour))},
	"held for one that never had so much":                {task: do(held, hungry, asksForA, since(lease+1)), agents: all(somebody("a", small), somebody("b", large)), want: "error 5005"},
	"queued for one that never had so much":              {task: do(queued, hungry, placedOnA, asksForA, since(lease+1)), agents: all(somebody("a", small)), want: "error 5005"},
	"expired while nobody live had enough":               {task: do(held, hungry, expired), agents: all(somebody("a", small), somebody("b", large, silent)), want: "error 5005"},
	"expired while one had enough":                       {task: do(held, hungry, expired), agents: all(somebody("a", small), somebody("b", large)), want: "error 5001"},
	"expired while the only one large enough refused it": {task: do(held, hungry, expired), agents: all(somebody("b", large)), lapsed: map[subject.AgentID]lapse{"b": {times: 1, until: noon, code: fault.ResourceLimitExceeded}}, want: "error 5005"},
	"expired while nobody was there":                     {task: do(held, hungry, expired), want: "error 5001"},
	"expired, enough memory, no graphics card":           {task: do(held, hungry, drawing, expired), agents: all(somebody("b", large)), want: "error 5005"},
	"for any, and one refuses it":                        {task: do(queued), agents: all(somebody("a", refusing), somebody("b")), want: "held held"},
	"for any, and a silent one has refused it":           {task: do(queued), agents: all(somebody("a", refusing, silent), somebody("b"))},
	"for any, and one of another type refuses it":        {task: do(queued), agents: all(somebody("a", refusing, ofDesktop), somebody("b"))},
	"placed on one who refuses it":                       {task: do(queued, placedOnA), agents: all(somebody("a", refusing)), want: "held held"},
	"placed on one, and another refuses it":              {task: do(queued, placedOnA), agents: all(somebody("a"), somebody("b", refusing))},
	"asked of one who refuses it":                        {task: do(queued, placedOnA, asksForA), agents: all(somebody("a", refusing)), want: "held held"},
	"held for one who has just refused it":               {task: do(held, asksForA), agents: all(somebody("a", refusing)), lapsed: map[subject.AgentID]lapse{"a": {times: 1, until: noon.Add(1)}}},
	"held for one who refused it long ago":               {task: do(held, asksForA), agents: all(somebody("a")), lapsed: map[subject.AgentID]lapse{"a": {times: 1, until: noon}}, want: "queued a"},
	"held, and the freest is shut":                       {task: do(held), agents: all(somebody("a", roomy), somebody("b")), shut: pausedA(time.Hour), want: "queued b"},
	"held, and who can is shut":                          {task: do(held), agents: all(somebody("a")), shut: pausedA(time.Second)},
	"placed on one that is shut for long":                {task: do(queued, placedOnA), agents: all(somebody("a")), shut: pausedA(lease + 1), want: "held held"},
	"placed on one that is shut for ever":                {task: do(queued, placedOnA), agents: all(somebody("a")), shut: map[subject.AgentID]gate.Shut{"a": {Kind: gate.Draining}}, want: "held held"},
	"placed on one that is shut for a moment":            {task: do(queued, placedOnA), agents: all(somebody("a")), shut: pausedA(lease)},
	"asked of one that is shut for long":                 {task: do(queued, placedOnA, asksForA), agents: all(somebody("a")), shut: pausedA(time.Hour)},
	"for any, and one is shut":                           {task: do(queued), agents: all(somebody("a"), somebody("b")), shut: pausedA(time.Hour)},
	"placed on a full one, and the free one is shut":     {task: do(queued, placedOnB, since(time.Minute)), agents: all(somebody("a"), somebody("b", busy, full(1))), taken: map[string]int{"b": 2}, shut: pausedA(time.Second)},
	"queued, delivered, silent, and who is free is shut": {task: do(queued, since(time.Hour)), delivered: 5, agents: all(somebody("a")), shut: pausedA(time.Hour)},

	// 5.4.1: queued.
	"queued a moment ago":                            {task: do(queued, since(grace)), acked: 5},
	"queued, acknowledged and not started":           {task: do(queued, since(grace+1)), acked: 5, delivered: 5, want: "queued any"},
	"queued, not acknowledged":                       {task: do(queued, since(time.Hour)), acked: 4, delivered: 4, agents: all(somebody("a"))},
	"queued, delivered, silent for two leases":       {task: do(queued, since(2*lease+1)), delivered: 5, agents: all(somebody("a")), want: "queued any"},
	"queued, delivered, silent for less":             {task: do(queued, since(2*lease)), delivered: 5, agents: all(somebody("a"))},
	"queued, delivered, silent, nobody is free":      {task: do(queued, since(time.Hour)), delivered: 5, agents: all(somebody("a", busy))},
	"queued anew once: twice the patience":           {task: do(queued, since(4*lease)), delivered: 5, requeued: 1, agents: all(somebody("a"))},
	"queued anew often: ten minutes at most":         {task: do(queued, since(10*time.Minute+1)), delivered: 5, requeued: 60, agents: all(somebody("a")), want: "queued any"},
	"queued, and this process was stopped meanwhile": {task: do(queued, since(time.Hour)), acked: 5, started: time.Second},
	"queued, and its time in the queue is over":      {task: do(queued, expired), agents: all(somebody("a")), want: "error 5001"},
	"queued for one, acknowledged and not started":   {task: do(queued, placedOnA, asksForA, since(grace+1)), acked: 5, want: "queued a"},

	// 5.4.2–4: running.
	"running, and its runner says so":                 {task: do(running, since(time.Hour)), agents: all(somebody("a", holding)), listed: time.Second},
	"running, a later life lists it":                  {task: do(running), agents: all(somebody("a", reborn, holding))},
	"running, a later life does not":                  {task: do(running), agents: all(somebody("a", reborn)), want: "attempt_failed 5002 gone"},
	"running the last attempt, a later life does not": {task: do(running, last), agents: all(somebody("a", reborn)), want: "error 5002 gone"},
	"running once, a later life does not list it":     {task: do(running, once), agents: all(somebody("a", reborn)), want: "error 5002 gone"},
	"running, a later life was only stored":           {task: do(running, since(time.Second)), agents: all(somebody("a", reborn, unheard))},
	"running, a heartbeat does not list it":           {task: do(running, since(time.Second)), agents: all(somebody("a"))},
	"running, silent for lease and two beats":         {task: do(running, since(time.Hour)), listed: lease + 10*time.Second + 1, want: "attempt_failed 5001 silent"},
	"running, silent for less":                        {task: do(running, since(time.Hour)), listed: lease + 10*time.Second},
	"running, silent since it was seen":               {task: do(running, since(lease))},
	"running, silent since this process was stopped":  {task: do(running, since(time.Hour)), started: lease},
	"running once, silent for hours":                  {task: do(running, once, since(10*time.Hour)), listed: 9 * time.Hour},

	// 5.5: deadlines.
	"running past its time":                        {task: do(running, briefly, since(time.Minute)), agents: all(somebody("a", holding)), listed: 1, want: "cancel_requested deadline"},
	"running past its time, by less than a lease":  {task: do(running, briefly, since(39*time.Second), func(t *ledger.Task) { t.Begun = ago(39 * time.Second) }), listed: 1},
	"running past its time, just begun again":      {task: do(running, briefly, since(time.Second)), listed: 1},
	"running once, lost for a day":                 {task: do(running, once, since(48*time.Hour)), started: 72 * time.Hour, listed: 25 * time.Hour, want: "cancel_requested deadline"},
	"running once within its time, lost for a day": {task: do(running, once, since(48*time.Hour), func(t *ledger.Task) { t.MaxDuration = 1000 * time.Hour }), started: 72 * time.Hour, listed: 25 * time.Hour},

	// 5.3: failed.
	"failed, its delay is over":                   {task: do(failed), agents: all(somebody("a")), want: "queued any"},
	"failed, its delay is not over":               {task: do(failed, retryAt(1), since(time.Second-1))},
	"failed, its agent's clock is an hour ahead":  {task: do(failed, retryAt(time.Hour), since(time.Second)), agents: all(somebody("a")), want: "queued any"},
	"failed a third time, an hour ahead":          {task: do(failed, retryAt(time.Hour), since(4*time.Second-1), func(t *ledger.Task) { t.State.Attempt = 3 })},
	"failed, silent, not settled":                 {task: do(failed, isSilent, since(lease+grace-1))},
	"failed, silent, settled":                     {task: do(failed, isSilent, since(lease+grace)), want: "queued any"},
	"failed, silent, settled for another process": {task: do(failed, isSilent, since(time.Hour)), started: lease},
	"failed, no attempt is left":                  {task: do(failed, last), want: "error 5002"},
	"failed for want of time, none is left":       {task: do(failed, last, func(t *ledger.Task) { t.State.Code = fault.Timeout }), want: "error 5001"},
	"failed the last time, silent, unsettled":     {task: do(failed, last, isSilent, since(lease))},
	"failed, poison":                              {task: do(failed, func(t *ledger.Task) { t.State.Deaths = tasklog.Poison }), want: "error 5002"},
	"failed, was asked of one":                    {task: do(failed, asksForA), want: "queued a"},
	"failed, not all offer it any more":           {task: do(failed), agents: all(somebody("a"), somebody("b", unable)), want: "queued a"},
	"failed, past its time in the queue":          {task: do(failed, expired), want: "queued any"},

	// Cancelling.
	"cancelling, its runner is at it":                 {task: do(cancelling, since(time.Second)), agents: all(somebody("a", holding))},
	"cancelling, settled":                             {task: do(cancelling, since(lease+grace)), want: "cancelled"},
	"cancelling by deadline, settled":                 {task: do(cancelling, byDeadline, since(lease+grace)), want: "error 5001"},
	"cancelling, gone":                                {task: do(cancelling), agents: all(somebody("a", reborn)), want: "cancelled gone"},
	"cancelling once, gone":                           {task: do(cancelling, once), agents: all(somebody("a", reborn)), want: "cancelled gone"},
	"cancelling by force, not settled":                {task: do(cancelling, once, forced, since(lease+grace-1))},
	"cancelling, not settled":                         {task: do(cancelling, since(lease+grace-1))},
	"cancelling, settled for another process":         {task: do(cancelling, since(time.Hour)), started: lease},
	"cancelling by deadline, gone":                    {task: do(cancelling, once, byDeadline), agents: all(somebody("a", reborn)), want: "error 5001"},
	"cancelling once, settled":                        {task: do(cancelling, once, since(time.Hour)), listed: time.Second},
	"cancelling once by deadline, settled":            {task: do(cancelling, once, byDeadline, since(lease+grace)), want: "error 5001"},
	"cancelling once by deadline, not settled":        {task: do(cancelling, once, byDeadline, since(lease))},
	"cancelling once by force, silent":                {task: do(cancelling, once, forced, since(lease+grace)), listed: lease + 10*time.Second + 1, want: "error 5001"},
	"cancelling once by force, heard to be at it":     {task: do(cancelling, once, forced, since(2*lease)), listed: time.Second},
	"cancelling once by force, at it for too long":    {task: do(cancelling, once, forced, since(2*lease+grace+1)), listed: time.Second, want: "error 5001"},
	"cancelling once by force, told to take its time": {task: do(cancelling, once, forced, since(2*lease+grace+1), func(t *ledger.Task) { t.State.Cancel.GraceSeconds = 31 }), listed: time.Second},
	"cancelling once, settled, its time is over":      {task: do(cancelling, once, briefly, since(lease+grace)), want: "error 5001"},
	"cancelling once, settled, lost for a day":        {task: do(cancelling, once, since(48*time.Hour)), started: 72 * time.Hour, listed: 25 * time.Hour, want: "error 5001"},

	// Neither queue nor holder.
	"nothing but void entries":   {},
	"a request that is at fault": {task: do(func(t *ledger.Task) { t.State.Stray = fault.Invalid("type", "is missing") }), want: "error 5003"},
	"it has ended":               {task: do(running, func(t *ledger.Task) { t.State.Phase, t.State.End = tasklog.PhaseEnded, tasklog.Succeeded }), agents: all(somebody("a", reborn))},
}

func do(steps ...func(*ledger.Task)) []func(*ledger.Task) { return steps }
func all(agents ...registry.Agent) []registry.Agent       { return agents }

func (s situation) make() (ledger.Task, *world) {
	t := ledger.Task{ID: task, Type: "infra", WorkType: "survey", SubmittedAt: ago(time.Hour), Seen: noon}
	t.State.RequestSeq, t.State.Priority = 5, subject.Normal
	for _, step := range s.task {
		step(&t)
	}
	if s.started == 0 {
		s.started = 24 * time.Hour
	}
	taken := s.taken
	if taken == nil {
		taken = map[string]int{}
	}
	return t, &world{
		now: noon, since: ago(s.started), lease: lease, grace: grace, silence: lease + 10*time.Second, lostAfter: 24 * time.Hour,
		agents: s.agents, coming: map[string]int{}, busy: func() map[string]int { return taken },
		placed: func() map[ledger.Placing]int { return s.placed }, ahead: map[ledger.Placing]int{},
		listed: func(subject.TaskID, int, uint64) time.Time {
			if s.listed == 0 {
				return time.Time{}
			}
			return ago(s.listed)
		},
		consumer: func(string) (uint64, uint64) { return s.delivered, s.acked },
		requeued: func(subject.TaskID) int { return s.requeued },
		refusal:  lease + 10*time.Second,
		facts: func() why.Facts {
			return why.Facts{Now: noon, Since: ago(s.started), Lease: lease, Grace: grace, Agents: s.agents}
		},
		shut:   func(id subject.AgentID) gate.Shut { return s.shut[id] },
		lapsed: func(_ subject.TaskID, id subject.AgentID) lapse { return s.lapsed[id] },
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, s := range situations {
		task, w := s.make()
		a, ok := decide(task, w)
		if got := a.String(); got != s.want || ok != (s.want != "") {
			t.Errorf("%s: decide = %q, %v, want %q", name, got, ok, s.want)
		}
	}
}

// Who reads of the end of a task that never began is told what it waited for, in bounds whoever has a say in the words.
func TestQueueTimeoutSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	long := func(a *registry.Agent) { a.State, a.Detail = message.StateBroken, strings.Repeat("ü", 1000) }
	for name, c := range map[string]struct {
		agents []registry.Agent
		want   string
	}{
		"no agent":     {nil, "its time in the queue is over; it waited for an agent of type infra: none has registered yet"},
		"busy agent":   {all(somebody("a", busy)), "its time in the queue is over; it waited for the only agent of type infra: a has no free slot (1 of 1)"},
		"a long story": {all(somebody("a", long)), "its time in the queue is over; it waited for the only agent of type infra: a broken: " + strings.Repeat("ü", 300-len("the only agent of type infra: a broken: ")) + "…"},
	} {
		task, w := situation{task: do(held, expired), agents: c.agents}.make()
		if a, ok := decide(task, w); !ok || a.fault == nil || a.fault.Code != fault.Timeout || a.fault.Message != c.want {
			t.Errorf("%s: %v, want %q", name, a.fault, c.want)
		}
	}
}

// What decide wants of a task is what the log takes from an orchestrator, and every fault of it says what its code
// promises.
func TestDecisionsAreAllowed(t *testing.T) {
	t.Parallel()
	for name, s := range situations {
		task, w := s.make()
		a, ok := decide(task, w)
		if !ok {
			continue
		}
		e := tasklog.Entry{Kind: a.kind, Attempt: task.State.Attempt, Subject: subject.Parsed{Writer: subject.Orchestrator}}
		e.Message.Custom.Chiffon = &message.Extension{Silent: a.silent, Gone: a.gone, Cancel: a.cancel}
		if a.fault != nil {
			e.Message.Failure = new(message.FailureOf(a.fault))
			for _, f := range a.fault.Code.Context() {
				v, ok := a.fault.Context[f.Name]
				if !ok || !typed(f, v) {
					t.Errorf("%s: fault %d has %s %v, want %+v", name, a.fault.Code, f.Name, v, f)
				}
			}
		}
		if err := tasklog.Judge(task.State, e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// typed reports whether a value is what the protocol's table of codes promises.
func typed(f fault.Field, v any) bool {
	switch v := v.(type) {
	case nil:
		return f.Nullable
	case int:
		return f.Type == "int"
	case string:
		_, err := time.Parse(time.RFC3339, v)
		return f.Type == "string" || f.Type == "datetime" && err == nil
	}
	return false
}
