package dispatch

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// act appends what was decided, if the log still is what the decision was made on; else ErrRefused.
func (d *Dispatcher) act(ctx context.Context, t ledger.Task, a action) (seq uint64, err error) {
	log, err := d.client.Task(ctx, t.ID)
	if err != nil {
		return 0, err
	}
	s := tasklog.Fold(log)
	if s.TailSeq != t.State.TailSeq {
		return 0, broker.ErrRefused
	}
	draft, err := write(t.ID, log, a)
	if err != nil {
		return 0, err
	}
	if a.kind == tasklog.Queued {
		if err := d.ready(ctx, s.Type, a.target); err != nil {
			return 0, err
		}
	}
	if seq, err = d.client.Append(ctx, draft.At(s.TailSeq, s.Attempt, 0)); err != nil {
		return 0, err
	}
	d.log.Info("task moved on", "task_id", t.ID, "trace_id", t.TraceID, "entry", a.kind, "attempt", s.Attempt, "target", a.target)
	if a.kind == tasklog.Queued && s.Phase == tasklog.PhaseQueued {
		d.mu.Lock()
		d.requeued[t.ID]++
		d.mu.Unlock()
	}
	switch {
	case a.kind == tasklog.CancelRequested:
		// The views first: the answer to the heartbeat that the poke brings about is made of them. Had they not seen
		// the entry by then, the agent would learn of it with its next heartbeat only.
		d.shown(ctx, seq)
		d.poke(s.Holder)
	case a.kind == tasklog.Queued && a.target != subject.Any:
		d.poke(a.target)
	}
	return seq, nil
}

// poke has an agent ask what is wanted of it. It asks anyway, only later.
func (d *Dispatcher) poke(agent string) {
	if err := d.client.Publish(subject.Poke(subject.AgentID(agent)), nil); err != nil {
		d.log.Warn("agent is not poked", "agent_id", agent, "error", err)
	}
}

// write makes the entry of an action, out of the request that the log begins with.
func write(id subject.TaskID, log []tasklog.Entry, a action) (tasklog.Draft, error) {
	m, ok := request(log)
	if !ok {
		// Nothing readable was ever submitted: the entry makes do with what the subject says.
		m = message.New(subject.Orchestrator, subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkRequest{TaskID: id})
	}
	own := subject.Event(id, subject.Orchestrator)
	switch a.kind {
	case tasklog.Queued, tasklog.Held:
		return rewrite(id, log, m, a)
	case tasklog.CancelRequested:
		st := answer(m, message.WorkStatus{TaskID: id, Status: message.StatusRunning})
		st.Custom.Chiffon = &message.Extension{Cancel: a.cancel}
		return tasklog.Write(a.kind, id, own, st)
	case tasklog.Cancelled:
		r := answer(m, message.WorkResult{
			TaskID: id, Status: message.ResultCancelled, ExitCode: 143, ResourcesUsed: &message.ResourcesUsed{},
		})
		// Where no cancel_requested says who and why, it does so itself.
		r.Custom.Chiffon = &message.Extension{Cancel: a.cancel, Gone: a.gone}
		return tasklog.Write(a.kind, id, own, r)
	case tasklog.AttemptFailed, tasklog.Error:
		f := answer(m, message.FailureOf(a.fault.With("task_id", string(id))))
		f.Custom.Chiffon = &message.Extension{Silent: a.silent, Gone: a.gone}
		if !a.retryAt.IsZero() {
			f.Custom.Chiffon.RetryAt = new(a.retryAt.UTC())
		}
		return tasklog.Write(a.kind, id, own, f)
	default:
		return tasklog.Draft{}, fmt.Errorf("an orchestrator does not append %s", a.kind)
	}
}

// rewrite puts the request once more: the same but for the envelope's own id and time.
func rewrite(id subject.TaskID, log []tasklog.Entry, m message.Message[message.WorkRequest], a action) (tasklog.Draft, error) {
	s := tasklog.Fold(log)
	m.MessageID, m.Timestamp = message.NewUUID(), message.Now()
	x := message.Extension{}
	if m.Custom.Chiffon != nil {
		x = *m.Custom.Chiffon
	}
	x.Hold, x.Attempts = a.hold, s.Allowed
	m.Custom.Chiffon = &x
	return tasklog.Write(a.kind, id, subject.Request(id, s.Type, a.target, s.Priority), m)
}

// request finds the work_request that a log begins with.
func request(log []tasklog.Entry) (m message.Message[message.WorkRequest], ok bool) {
	for _, e := range log {
		if r := e.Message.Request; r != nil {
			return message.Message[message.WorkRequest]{Envelope: e.Message.Envelope, Payload: *r}, true
		}
	}
	return m, false
}

// answer makes a message that belongs to a request.
func answer[P message.Payload](m message.Message[message.WorkRequest], payload P) message.Message[P] {
	return message.New(subject.Orchestrator, m.ToAgent, m.TraceID, m.RequestID, payload)
}

// TypeConsumers and AgentConsumers are made when they are first needed, and remembered.
func (d *Dispatcher) typeConsumers(ctx context.Context, t subject.AgentType) ([]string, error) {
	return d.known("type "+string(t), func() ([]string, error) { return d.client.TypeConsumers(ctx, t) })
}

func (d *Dispatcher) agentConsumers(ctx context.Context, id subject.AgentID) ([]string, error) {
	return d.known("agent "+string(id), func() ([]string, error) { return d.client.AgentConsumers(ctx, id) })
}

func (d *Dispatcher) known(what string, ensure func() ([]string, error)) ([]string, error) {
	d.mu.Lock()
	names, ok := d.consumers[what]
	d.mu.Unlock()
	if ok {
		return names, nil
	}
	names, err := ensure()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.consumers[what] = names
	return names, nil
}

// Consumers names the durables that an agent pulls from, first served first: those of its type, and its own once
// something was addressed to it.
func (d *Dispatcher) Consumers(ctx context.Context, id subject.AgentID, t subject.AgentType) ([]string, error) {
	shared, err := d.typeConsumers(ctx, t)
	if err != nil {
		return nil, err
	}
	own, err := d.known("agent "+string(id), func() ([]string, error) {
		_, err := d.client.Consumer(ctx, subject.AgentConsumer(id, subject.Low)) // the last one that is made
		if err != nil {
			return nil, err
		}
		return d.client.AgentConsumers(ctx, id)
	})
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return shared, nil // nothing was ever addressed to it
	case err != nil:
		return nil, err
	}
	var all []string
	for i := range shared {
		all = append(all, own[i], shared[i])
	}
	return all, nil
}

// Cancelled picks, of what an agent holds, the tasks that are to be stopped.
func (d *Dispatcher) Cancelled(running []message.Running) []subject.TaskID {
	var stop []subject.TaskID
	for _, r := range running {
		if t, ok := d.ledger.Get(r.TaskID); ok && t.State.Phase == tasklog.PhaseCancelling {
			stop = append(stop, r.TaskID)
		}
	}
	return stop
}
