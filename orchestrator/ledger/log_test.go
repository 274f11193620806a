package ledger_test

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A world is a broker, a ledger that runs, and everybody who writes.
type world struct {
	testing.TB
	*broker.Client
	*ledger.Ledger
	stop func()
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, Client: natstest.Run(t)}
	w.Ledger, w.stop = w.run(ledger.New(w.Client, natstest.Log(t)))
	return w
}

// run has a ledger fold until stop, or the end of the test.
func (w *world) run(l *ledger.Ledger) (*ledger.Ledger, func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Run(ctx); err != nil {
			w.Errorf("ledger ended: %v", err)
		}
	})
	stop := sync.OnceFunc(func() { cancel(); wg.Wait() })
	w.Cleanup(stop)
	return l, stop
}

const patience = 20 * time.Second

// folded waits until a ledger has folded everything that is there.
func (w *world) folded(l *ledger.Ledger) {
	w.Helper()
	last, err := w.End(w.Context(), subject.TasksStream, ">")
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	if err := l.Wait(ctx, last); err != nil {
		w.Fatalf("wait for %d: %v", last, err)
	}
}

// An order is a request to be made.
type order struct {
	id                    subject.TaskID
	workType, agent, name string
	kind                  subject.AgentType
	labels                map[string]string
	expires               *time.Time
	limit                 int // max_duration_seconds; 0 is 60
	unlimited             bool
}

func (w *world) submit(o order) subject.TaskID {
	w.Helper()
	if o.kind == "" {
		o.kind = "infra"
	}
	if o.workType == "" {
		o.workType = "survey"
	}
	if o.id == "" {
		o.id = subject.TaskID(message.NewUUID())
	}
	hints := &message.Hints{MaxDurationSeconds: cmp.Or(o.limit, 60)}
	if o.unlimited {
		hints = nil
	}
	m := message.New(subject.Orchestrator, o.kind, message.NewUUID(), message.NewUUID(), message.WorkRequest{
		TaskID: o.id, WorkType: o.workType, Parameters: json.RawMessage(`{"a": 1}`),
		Hints: hints,
	})
	m.Custom.Chiffon = &message.Extension{Name: o.name, Agent: o.agent, Labels: o.labels, SubmittedBy: "admin", Expires: o.expires}
	id := m.Payload.TaskID
	w.says(tasklog.Write(tasklog.Submitted, id, subject.Request(id, o.kind, subject.Any, subject.Normal), m))(0, 0)
	return id
}

func (w *world) says(d tasklog.Draft, err error) func(attempt int, boot uint64) {
	w.Helper()
	return func(attempt int, boot uint64) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		tail, err := w.End(w.Context(), subject.TasksStream, subject.Task(d.Task))
		if err != nil {
			w.Fatal(err)
		}
		if _, err := w.Append(w.Context(), d.At(tail, attempt, boot)); err != nil {
			w.Fatal(err)
		}
	}
}

func from[P message.Payload](payload P, x *message.Extension) message.Message[P] {
	m := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), payload)
	m.Custom = message.Custom{AgentID: "a", Chiffon: x}
	return m
}

func (w *world) start(id subject.TaskID, attempt int) {
	w.Helper()
	w.startOf(id, attempt, 3)
}

func (w *world) startOf(id subject.TaskID, attempt, allowed int) {
	w.Helper()
	m := from(message.WorkStatus{TaskID: id, Status: message.StatusRunning}, &message.Extension{Attempts: allowed})
	w.says(tasklog.Write(tasklog.Started, id, subject.Event(id, "a"), m))(attempt, 1)
}

func (w *world) end(id subject.TaskID, attempt, statuses int) {
	w.Helper()
	m := from(message.WorkResult{TaskID: id, Status: message.ResultSuccess, Output: "done", ResourcesUsed: &message.ResourcesUsed{CPUTimeMS: 3}},
		&message.Extension{StatusCount: statuses})
	w.says(tasklog.Write(tasklog.Succeeded, id, subject.Event(id, "a"), m))(attempt, 1)
}

func (w *world) fail(id subject.TaskID, attempt int) {
	w.Helper()
	m := from(message.Failure{Code: 5002, Message: "lost", Context: map[string]any{"agent_id": "a", "n": 1}}, nil)
	w.says(tasklog.Write(tasklog.AttemptFailed, id, subject.Event(id, "a"), m))(attempt, 1)
}

func (w *world) requeue(id subject.TaskID, attempt int) {
	w.Helper()
	m := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(), message.WorkRequest{
		TaskID: id, WorkType: "survey", Parameters: json.RawMessage(`{"a": 1}`),
	})
	w.says(tasklog.Write(tasklog.Queued, id, subject.Request(id, "infra", subject.Any, subject.Normal), m))(attempt, 0)
}

// status stores what an attempt says, so often.
func (w *world) status(id subject.TaskID, attempt, percent, times int) {
	w.Helper()
	m := from(message.WorkStatus{
		TaskID: id, Status: message.StatusStepCompleted, ProgressPercent: &percent,
		Step: &message.Step{Number: percent, Name: "step", Output: strings.Repeat("x", 10)},
	}, &message.Extension{Attempt: attempt})
	data, err := m.Encode()
	if err != nil {
		w.Fatal(err)
	}
	for range times {
		w.put(subject.Status(id, "a"), data)
	}
}

func (w *world) put(subj string, data []byte) {
	w.Helper()
	r, err := w.Send(subj, data)
	if err == nil {
		err = r.Wait(w.Context())
	}
	if err != nil {
		w.Fatal(err)
	}
}

// cancel asks the holder of an attempt to stop it.
func (w *world) cancel(id subject.TaskID, attempt int, c message.Cancel) {
	w.Helper()
	m := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(), message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom.Chiffon = &message.Extension{Cancel: &c}
	w.says(tasklog.Write(tasklog.CancelRequested, id, subject.Event(id, subject.Orchestrator), m))(attempt, 0)
}
