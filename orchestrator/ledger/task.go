package ledger

import (
	"maps"
	"slices"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/retry"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A Task is what the ledger keeps of one task: enough to list, place and watch it. Its parameters and output stay in
// the log.
type Task struct {
	ID          subject.TaskID
	Name        string
	Type        subject.AgentType
	WorkType    string
	Priority    subject.Priority
	Agent       string // the agent that was asked for
	On          map[string]string
	Needs       []string
	Labels      map[string]string
	MaxDuration time.Duration // over all attempts; 0 is no limit
	MaxMemoryMB int           // that it may take; 0 is no limit
	GPUVRAMMB   int           // of video memory that must be free
	RequestID   message.UUID
	TraceID     message.UUID
	SubmittedBy string
	RetryOf     string    // the ended task that was started anew as this one
	Expires     time.Time // end of its time in the queue; zero is never
	FirstSeq    uint64    // of the first entry that counts, or of a request that is at fault; 0 is no task yet
	SubmittedAt time.Time
	FirstStart  time.Time
	StartedAt   time.Time
	EndedAt     time.Time
	EndedBy     string          // who wrote the end: an agent's id, or orchestrator
	Cancel      *message.Cancel // the stop that is wanted, or was
	CancelAt    time.Time       // when that was stored
	State       tasklog.State
	Percent     int // -1 is unknown
	Step        view.Step
	Fault       *fault.Fault // of the end, or of the latest failed attempt
	Attempts    []Start      // every execution that has begun
	Late        []Late       // outcomes that came too late to be recorded

	// Seen is when this process saw the tail, Begun when the first attempt began and Due when its time in the queue is
	// over (zero is never), on its own monotonic clock: what waits, waits from there, or until then.
	Seen  time.Time `json:"-"`
	Begun time.Time `json:"-"`
	Due   time.Time `json:"-"`
}

// A Start is one execution that has begun.
type Start struct {
	Agent subject.AgentID
	At    time.Time
}

func newTask(id subject.TaskID) *Task { return &Task{ID: id, Percent: -1} }

// apply folds one more entry of the task's log. The error says why it does not count.
func (t *Task) apply(e tasklog.Entry, now time.Time) (void error) {
	t.Seen = now
	t.State, void = t.State.Next(e)
	if t.FirstSeq == 0 && (void == nil || t.State.Stray != nil) {
		t.FirstSeq, t.SubmittedAt = e.Seq, e.Time
	}
	if void != nil {
		return void
	}
	m := e.Message
	switch {
	case m.Request != nil && t.WorkType == "":
		t.take(m)
		t.limit(now)
	case e.Kind == tasklog.Started:
		t.StartedAt, t.Percent, t.Step = e.Time, -1, view.Step{}
		if t.FirstStart.IsZero() {
			t.FirstStart, t.Begun = e.Time, now.Add(-max(0, now.Sub(e.Time)))
		}
		t.Attempts = append(t.Attempts, Start{Agent: subject.AgentID(e.Subject.Writer), At: e.Time})
	case m.Failure != nil:
		t.Fault = m.Failure.Fault()
	}
	if x := m.Custom.Chiffon; x != nil && x.Cancel != nil && e.Subject.Writer == subject.Orchestrator {
		t.Cancel, t.CancelAt = x.Cancel, e.Time
	}
	if e.Kind.End() {
		t.EndedAt, t.EndedBy = e.Time, e.Subject.Writer
		if m.Failure == nil {
			t.Fault = nil
		}
		if e.Kind == tasklog.Succeeded {
			t.Percent = 100
		}
	}
	return nil
}

func (t *Task) take(m message.Any) {
	t.Type, t.WorkType = m.ToAgent, m.Request.WorkType
	t.RequestID, t.TraceID = m.RequestID, m.TraceID
	if h := m.Request.Hints; h != nil {
		t.MaxDuration = time.Duration(h.MaxDurationSeconds) * time.Second
		t.MaxMemoryMB, t.GPUVRAMMB = h.MaxMemoryMB, h.GPUVRAMMB
	}
	x := m.Custom.Chiffon
	if x == nil {
		x = &message.Extension{}
	}
	t.Name, t.Agent, t.On, t.Needs, t.Labels, t.SubmittedBy = x.Name, x.Agent, x.On, x.Needs, x.Labels, x.SubmittedBy
	t.RetryOf = x.RetryOf
	t.Priority, _ = subject.ParsePriority(x.Priority) // the subject, which is a priority, decides
	if t.State.Priority != "" {
		t.Priority = t.State.Priority
	}
	if x.Expires != nil {
		t.Expires = *x.Expires
	}
}

// limit notes when the task's time in the queue is over, by a clock that nobody sets: from now on it runs out as it
// would, however far the wall clock jumps.
func (t *Task) limit(now time.Time) {
	if !t.Expires.IsZero() {
		t.Due = now.Add(t.Expires.Sub(now))
	}
}

// known reports whether there is a task: a request, be it a bad one.
func (t *Task) known() bool { return t.FirstSeq > 0 }

// waits reports whether the task waits to begin, or for its next attempt.
func (t *Task) waits() bool {
	p := t.State.Phase
	return p == tasklog.PhaseHeld || p == tasklog.PhaseQueued || p == tasklog.PhaseFailed
}

// Ended reports whether the task has its end.
func (t *Task) Ended() bool { return t.State.Phase == tasklog.PhaseEnded }

// RetryIn is how long it takes until a failed task's next attempt is due: until the moment that the log names, but no
// longer than the protocol's delay since the failure was seen. Who wrote that moment has a clock of its own, which may
// be ahead, or this one was set back.
func (t *Task) RetryIn(now time.Time) time.Duration {
	return max(0, min(t.State.RetryAt.Sub(now), retry.After(t.State.Attempt+1)-now.Sub(t.Seen)))
}

// StateName is the task's state in the API's words.
func (t *Task) StateName() string {
	switch s := t.State; s.Phase {
	case tasklog.PhaseHeld:
		return view.Held
	case tasklog.PhaseRunning:
		if s.Paused {
			return view.Paused
		}
		return view.Running
	case tasklog.PhaseCancelling:
		return view.Cancelling
	case tasklog.PhaseEnded:
		return string(s.End)
	case tasklog.PhaseNone, tasklog.PhaseQueued, tasklog.PhaseFailed:
		return view.Queued
	}
	return ""
}

// View is the task as lists show it.
func (t *Task) View() view.Task {
	s := t.State
	v := view.Task{
		TaskID: string(t.ID), Name: t.Name, State: t.StateName(), AgentType: string(t.Type), WorkType: t.WorkType,
		Priority: string(t.Priority), Agent: t.Agent, On: maps.Clone(t.On), Needs: slices.Clone(t.Needs),
		Labels: maps.Clone(t.Labels), RequestID: string(t.RequestID), TraceID: string(t.TraceID),
		SubmittedBy: t.SubmittedBy, AgentID: s.Holder, Attempt: s.Attempt, Attempts: s.Allowed,
		SubmittedAt: t.SubmittedAt.UTC(), StartedAt: moment(t.StartedAt), EndedAt: moment(t.EndedAt),
		ExpiresAt: moment(t.Expires), Error: faultView(t.Fault), RetryOf: t.RetryOf, Cancel: t.cancelView(),
		Late: lateView(t.Late),
	}
	if s.Phase == tasklog.PhaseFailed {
		v.RetryAt = moment(s.RetryAt)
	}
	if t.Percent >= 0 {
		v.ProgressPercent = new(t.Percent)
	}
	if t.Step.Number > 0 {
		v.Step = new(t.Step)
	}
	return v
}

func (t *Task) cancelView() *view.Cancel {
	c := t.Cancel
	if c == nil {
		return nil
	}
	return &view.Cancel{
		By: c.By, Reason: c.Reason, At: moment(t.CancelAt), Signal: c.Signal, GraceSeconds: c.GraceSeconds,
		Force: c.Force, Deadline: c.Deadline,
	}
}

// Describe is one task as its log tells it, with parameters and result, and with the progress that the ledger knows.
func (t *Task) Describe(log []tasklog.Entry) view.Task {
	full := newTask(t.ID)
	v := view.Task{}
	var end tasklog.Entry
	for _, e := range log {
		_ = full.apply(e, time.Time{}) // what does not count is the history's matter
		if full.Ended() && end.Seq == 0 {
			end = e
		}
	}
	full.Percent, full.Step, full.Late = max(full.Percent, t.Percent), t.Step, t.Late
	v = full.View()
	for _, e := range log {
		if r := e.Message.Request; r != nil {
			v.Parameters, v.Hints = r.Parameters, hintsView(r.Hints)
			break
		}
	}
	if r := end.Message.Result; r != nil {
		v.Result = resultView(r, end.Message.Custom.OutputBytes)
	}
	return v
}

func hintsView(h *message.Hints) *view.Hints {
	if h == nil {
		return nil
	}
	return &view.Hints{MaxDurationSeconds: h.MaxDurationSeconds, MaxMemoryMB: h.MaxMemoryMB, GPUVRAMMB: h.GPUVRAMMB}
}

func resultView(r *message.WorkResult, bytes int64) *view.Result {
	v := &view.Result{
		Status: r.Status, ExitCode: r.ExitCode, Output: r.Output, OutputEncoding: r.OutputEncoding, OutputBytes: bytes,
	}
	if u := r.ResourcesUsed; u != nil {
		v.ResourcesUsed = view.Resources{DurationSeconds: u.DurationSeconds, GPUVRAMMB: u.GPUVRAMMB, CPUTimeMS: u.CPUTimeMS}
	}
	return v
}

func faultView(f *fault.Fault) *view.Fault {
	if f == nil {
		return nil
	}
	return &view.Fault{Code: int(f.Code), Message: f.Message, Context: f.Context}
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}
