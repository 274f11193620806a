package intake_test

import (
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/agentrunner/spool"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// An order is a request to be made.
type order struct {
	workType string
	params   string
	priority subject.Priority
	hints    *message.Hints
	by       string
}

func (o *order) request(id subject.TaskID) message.Message[message.WorkRequest] {
	if o.params == "" {
		o.params = "{}"
	}
	if o.priority == "" {
		o.priority = subject.Normal
	}
	m := message.New("orchestrator", agentType, message.NewUUID(), message.NewUUID(), message.WorkRequest{
		TaskID: id, WorkType: o.workType, Parameters: json.RawMessage(o.params), Hints: o.hints,
	})
	m.Custom.Chiffon = &message.Extension{SubmittedBy: o.by}
	return m
}

// submit puts a request into the log.
func (w *world) submit(o order) subject.TaskID {
	w.Helper()
	id := subject.TaskID(message.NewUUID())
	w.request(id, tasklog.Submitted, o, 0, 0)
	return id
}

func (w *world) request(id subject.TaskID, kind tasklog.Kind, o order, tail uint64, attempt int) {
	w.Helper()
	m := o.request(id)
	w.append(tasklog.Write(kind, id, subject.Request(id, agentType, subject.Any, o.priority), m))(tail, attempt)
}

// append makes what stores a draft, once it is told where.
func (w *world) append(d tasklog.Draft, err error) func(tail uint64, attempt int) uint64 {
	w.Helper()
	return func(tail uint64, attempt int) uint64 {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
		seq, err := w.Append(w.Context(), d.At(tail, attempt, 0))
		if err != nil {
			w.Fatal(err)
		}
		return seq
	}
}

// cancel asks for a running task to be stopped.
func (w *world) cancel(id subject.TaskID, c message.Cancel) {
	w.Helper()
	st := w.state(id)
	m := message.New("orchestrator", agentType, message.NewUUID(), message.NewUUID(),
		message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom.Chiffon = &message.Extension{Cancel: &c}
	w.append(tasklog.Write(tasklog.CancelRequested, id, subject.Event(id, subject.Orchestrator), m))(st.TailSeq, st.Attempt)
}

// revoke takes an attempt away for silence.
func (w *world) revoke(id subject.TaskID) {
	w.Helper()
	st := w.state(id)
	m := message.New("orchestrator", agentType, message.NewUUID(), message.NewUUID(), message.Failure{Code: 5001, Message: "silent"})
	m.Custom.Chiffon = &message.Extension{Silent: true}
	w.append(tasklog.Write(tasklog.AttemptFailed, id, subject.Event(id, subject.Orchestrator), m))(st.TailSeq, st.Attempt)
}

// requeue gives a failed task its next attempt.
func (w *world) requeue(id subject.TaskID, o order) {
	w.Helper()
	st := w.state(id)
	w.request(id, tasklog.Queued, o, st.TailSeq, st.Attempt)
}

// requestAgainAndRun queues a task anew and waits for its success.
func (w *world) requestAgainAndRun(id subject.TaskID) {
	w.Helper()
	w.requeue(id, order{workType: "talk"})
	w.entry(id, tasklog.Succeeded)
}

// snatch takes a request out of the queue without answering it.
func (w *world) snatch(p subject.Priority) jetstream.Msg {
	w.Helper()
	c, err := w.Consumer(w.Context(), subject.TypeConsumer(agentType, p))
	if err != nil {
		w.Fatal(err)
	}
	m, err := c.Next()
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// life leaves a state directory as a life does that died with an attempt, and the log as it made it.
func (w *world) life(id subject.TaskID, workType string, stored, begun bool) (dir string) {
	w.Helper()
	dir = filepath.Join(w.TempDir(), "state")
	s, err := spool.Open(dir)
	if err != nil {
		w.Fatal(err)
	}
	allowed := map[string]int{"gate": 2, "once": 1}[workType]
	m := message.New(agentType, "orchestrator", message.NewUUID(), message.NewUUID(),
		message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	m.Custom = message.Custom{AgentID: "one", Chiffon: &message.Extension{Attempts: allowed}}
	d, err := tasklog.Write(tasklog.Started, id, subject.Event(id, "one"), m)
	if err != nil {
		w.Fatal(err)
	}
	d = d.At(w.state(id).TailSeq, 1, s.Boot)
	r := spool.Record{
		Task: id, Attempt: 1, Allowed: allowed, Boot: s.Boot, Entry: d.ID, Expect: d.Expect, WorkType: workType,
		Trace: message.NewUUID(), Request: message.NewUUID(), Begun: begun,
	}
	if stored {
		if r.Started, err = w.Append(w.Context(), d); err != nil {
			w.Fatal(err)
		}
	}
	if err := errors.Join(s.Put(r), s.Close()); err != nil {
		w.Fatal(err)
	}
	return dir
}

// outcome leaves one in the state directory of a life that has died.
func (w *world) outcome(dir string, id subject.TaskID, r message.WorkResult) tasklog.Draft {
	w.Helper()
	st := w.state(id)
	m := message.New(agentType, "orchestrator", message.NewUUID(), message.NewUUID(), r)
	m.Custom = message.Custom{AgentID: "one", OutputBytes: 7, Chiffon: &message.Extension{StatusCount: 3}}
	kind := map[string]tasklog.Kind{message.ResultSuccess: tasklog.Succeeded, message.ResultCancelled: tasklog.Cancelled}[r.Status]
	d, err := tasklog.Write(kind, id, subject.Event(id, "one"), m)
	if err != nil {
		w.Fatal(err)
	}
	d = d.At(st.TailSeq, 1, st.Boot)
	s, err := spool.Open(dir)
	if err != nil {
		w.Fatal(err)
	}
	records, err := s.Records()
	if err != nil || len(records) != 1 {
		w.Fatal(records, err)
	}
	records[0].Outcome = &d
	if err := errors.Join(s.Put(records[0]), s.Close()); err != nil {
		w.Fatal(err)
	}
	return d
}
