package dispatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// An Order is what somebody wants done: a work_request whose extension fields say who, where and how urgent. A
// task_id of its own is kept; without one it is derived from By and the request_id.
type Order struct {
	Request      message.Message[message.WorkRequest]
	By           string        // the submitter
	QueueTimeout time.Duration // 0 is for ever
}

// ErrConflict comes back from Submit when the request_id, or the task_id, already stands for other content.
var ErrConflict = errors.New("another request already has this id")

// ErrFull comes back from Submit when the task log has no room for new tasks. What runs can still end.
var ErrFull = errors.New("the task log is nearly full")

// Submit records an order. When it returns nil error the task is in the log and in the views; created is false when
// it was there before. Any other error than a *fault.Fault, ErrConflict or ErrFull leaves its fate unknown: the
// caller submits the same order again.
func (d *Dispatcher) Submit(ctx context.Context, o Order) (id subject.TaskID, created bool, err error) {
	m := o.Request
	x := message.Extension{}
	if m.Custom.Chiffon != nil {
		x = *m.Custom.Chiffon
	}
	x.SubmittedBy = o.By
	x.Digest = digest(m, x, o.QueueTimeout)
	if o.QueueTimeout > 0 {
		x.Expires = new(time.Now().Add(o.QueueTimeout).UTC())
	}
	m.Custom.Chiffon = &x
	if m.Payload.TaskID == "" {
		m.Payload.TaskID = tasklog.TaskID(o.By, m.RequestID)
	}
	id = m.Payload.TaskID
	priority, err := subject.ParsePriority(x.Priority)
	if err != nil {
		return "", false, fault.Invalid("priority", "%v", err)
	}
	target, hold, flt := d.aim(m, x)
	if flt != nil {
		return "", false, flt
	}
	kind := tasklog.Submitted
	if hold != nil {
		kind = tasklog.Held
		x.Hold = hold
	}
	draft, err := tasklog.Write(kind, id, subject.Request(id, m.ToAgent, target, priority), m)
	if err != nil {
		return "", false, err
	}
	if err := d.ready(ctx, m.ToAgent, target); err != nil {
		return "", false, err
	}
	seq, created, err := d.record(ctx, draft, x.Digest)
	if err != nil {
		return "", false, err
	}
	if created && target != subject.Any && target != subject.Held {
		if err := d.client.Publish(subject.Poke(subject.AgentID(target)), nil); err != nil {
			d.log.Warn("agent is not poked", "agent_id", target, "error", err)
		}
	}
	if err := d.ledger.Wait(ctx, seq); err != nil {
		return "", false, fmt.Errorf("task %s is recorded, and not in the views yet: %w", id, err)
	}
	return id, created, nil
}

// ready makes sure that somebody can be handed the request.
func (d *Dispatcher) ready(ctx context.Context, t subject.AgentType, target string) error {
	var err error
	switch target {
	case subject.Held:
	case subject.Any:
		_, err = d.typeConsumers(ctx, t)
	default:
		_, err = d.agentConsumers(ctx, subject.AgentID(target))
	}
	return err
}

// record appends the first entry of a task, or finds that it is there.
func (d *Dispatcher) record(ctx context.Context, draft tasklog.Draft, want string) (seq uint64, created bool, err error) {
	if d.full.Load() {
		return 0, false, ErrFull
	}
	for tail := uint64(0); ; {
		seq, err := d.client.Append(ctx, draft.At(tail, 0, 0))
		switch {
		case err == nil:
			return seq, true, nil
		case broker.Full(err):
			return 0, false, ErrFull
		case !errors.Is(err, broker.ErrRefused):
			return 0, false, err
		}
		log, err := d.client.Task(ctx, draft.Task)
		if err != nil {
			return 0, false, err
		}
		s := tasklog.Fold(log)
		if first, ok := request(log); ok {
			if x := first.Custom.Chiffon; x == nil || x.Digest != want {
				return 0, false, ErrConflict
			}
			return s.TailSeq, false, nil
		}
		if s.Phase != tasklog.PhaseNone || s.Stray != nil {
			return 0, false, ErrConflict // somebody put a message there by hand
		}
		tail = s.TailSeq
	}
}

// aim says where a request goes: any agent of its type, one agent, or nobody yet.
func (d *Dispatcher) aim(m message.Message[message.WorkRequest], x message.Extension) (target string, hold *message.Hold, flt *fault.Fault) {
	if err := m.ToAgent.Check(); err != nil {
		return "", nil, fault.Invalid("agent_type", "%v", err)
	}
	now := time.Now()
	t := ledger.Task{Type: m.ToAgent, WorkType: m.Payload.WorkType, Agent: x.Agent, On: x.On, Needs: x.Needs}
	var known []registry.Agent
	for _, a := range d.agents.Agents(now) {
		if a.AgentType == m.ToAgent && (x.Agent == "" || x.Agent == string(a.AgentID)) {
			known = append(known, a)
		}
	}
	if x.Agent != "" {
		if err := subject.AgentID(x.Agent).Check(); err != nil {
			return "", nil, fault.Invalid("agent", "%v", err)
		}
		if a, ok := d.agents.Agent(subject.AgentID(x.Agent), now); ok && a.AgentType != m.ToAgent {
			return "", nil, fault.Invalid("agent", "agent %s is of type %s, not %s", x.Agent, a.AgentType, m.ToAgent)
		}
	}
	if flt := judge(m.Payload, known); flt != nil {
		return "", nil, flt
	}
	w := &world{agents: known}
	switch {
	case x.Agent != "" && len(x.On) == 0 && len(x.Needs) == 0:
		return x.Agent, nil, nil
	case w.anyoneCan(t) && x.Agent == "":
		return subject.Any, nil, nil
	}
	return subject.Held, &message.Hold{Reason: "placement", Detail: "an agent that fits is being looked for"}, nil
}

// judge holds a request against what the known agents offer: 5006 when none of them does such work, 5003 when none
// takes the parameters.
func judge(r message.WorkRequest, known []registry.Agent) *fault.Fault {
	var supported []string
	seen := map[string]bool{}
	var wrong *fault.Fault
	offered, taken := false, false
	for _, a := range known {
		for _, o := range a.WorkTypes {
			if !seen[o.Name] {
				seen[o.Name], supported = true, append(supported, o.Name)
			}
		}
		if !a.Offers(r.WorkType) {
			continue
		}
		offered = true
		if flt := a.Check(r.WorkType, r.Parameters); flt != nil {
			wrong = flt
		} else {
			taken = true
		}
	}
	switch {
	case len(supported) > 0 && !offered:
		return fault.Unsupported(r.WorkType, supported)
	case wrong != nil && !taken:
		return wrong
	}
	return nil
}

// digest is one value for all that an order asks for, so that a repetition is told from another order.
func digest(m message.Message[message.WorkRequest], x message.Extension, queue time.Duration) string {
	var parameters any
	if err := json.Unmarshal(m.Payload.Parameters, &parameters); err != nil {
		parameters = string(m.Payload.Parameters)
	}
	h := message.Hints{}
	if m.Payload.Hints != nil {
		h = *m.Payload.Hints
	}
	data, err := json.Marshal([]any{
		m.ToAgent, m.Payload.WorkType, parameters, h.MaxDurationSeconds, h.MaxMemoryMB, h.GPUVRAMMB,
		x.Name, x.Description, x.Priority, x.Agent, x.On, x.Needs, x.Labels, x.Dependencies, x.ParentTaskID, x.RetryOf,
		queue, x.Expires,
	})
	if err != nil {
		panic(err) // plain values only
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
