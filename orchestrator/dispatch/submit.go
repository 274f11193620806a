package dispatch

import (
	"context"
	"errors"
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

// ErrNoRoom comes back from Submit when the disk under the broker's store is nearly full. What runs can still end.
var ErrNoRoom = errors.New("the disk under the broker's store is nearly full")

// Submit records an order. When it returns nil error the task is in the log, and as a rule in the views; created is
// false when it was there before, which goes before every reason to refuse it. Any other error than a *fault.Fault, a
// *Crowded, ErrConflict, ErrFull or ErrNoRoom leaves its fate unknown: the caller submits the same order again. The id
// comes back with an error too, once it is known.
//
// A fault names its field as the envelope does: payload.parameters.host, x_custom_fields.chiffon.agent.
func (d *Dispatcher) Submit(ctx context.Context, o Order) (id subject.TaskID, created bool, err error) {
	m := o.Request
	x, err := wanted(m.Custom.Chiffon)
	if err != nil {
		return m.Payload.TaskID, false, err
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
	target, hold, flt := d.aim(m, x)
	var refusal error
	if refusal = d.admit(m.ToAgent, o.By); flt != nil {
		refusal = flt
	}
	if refusal != nil {
		seq, err := d.accepted(ctx, id, x.Digest)
		if err == nil && seq == 0 {
			err = refusal
		}
		return id, false, err
	}
	kind := tasklog.Submitted
	if hold != nil {
		kind, x.Hold = tasklog.Held, hold
	}
	if err := d.ready(ctx, m.ToAgent, target); err != nil {
		return id, false, err
	}
	seq, created, err := d.store(ctx, id, x.Digest, func() (tasklog.Draft, error) {
		// The submitter's own message_id is not the entry's: repeated with it, an order would pass for stored,
		// whatever it says now.
		m.MessageID = message.NewUUID()
		return tasklog.Write(kind, id, subject.Request(id, m.ToAgent, target, subject.Priority(x.Priority)), m)
	})
	if err != nil {
		return id, false, err
	}
	if created && target != subject.Any && target != subject.Held {
		d.poke(target)
	}
	d.shown(ctx, seq)
	return id, created, nil
}

// spare is what a request may grow by when it is put again, with headers.
const spare = 16 << 10

// fits refuses a request that could not be put again for want of room in a message.
func (d *Dispatcher) fits(draft tasklog.Draft) *fault.Fault {
	if room := int(min(message.MaxSize, d.client.MaxPayload()) - spare); len(draft.Data) > room {
		return fault.Invalid("", "the request has %d bytes, more than the %d that fit: send smaller parameters, such as the name of a file on the agent's host", len(draft.Data), room)
	}
	return nil
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

// store appends the first entry of a task, or finds that it is there. Each try is written anew.
func (d *Dispatcher) store(ctx context.Context, id subject.TaskID, want string, write func() (tasklog.Draft, error)) (seq uint64, created bool, err error) {
	for tail := uint64(0); ; {
		draft, err := write()
		if err != nil {
			return 0, false, err
		}
		if flt := d.fits(draft); flt != nil {
			return 0, false, flt
		}
		seq, err := d.client.Append(ctx, draft.At(tail, 0, 0))
		switch {
		case err == nil:
			return seq, true, nil
		case broker.Full(err):
			if seq, err = d.accepted(ctx, id, want); err == nil && seq == 0 {
				err = ErrFull
			}
			return seq, false, err
		case !errors.Is(err, broker.ErrRefused):
			return 0, false, err
		}
		log, err := d.client.Task(ctx, id)
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
		return "", nil, fault.Invalid("to_agent", "%v", err)
	}
	now := time.Now()
	t := ledger.Task{Type: m.ToAgent, WorkType: m.Payload.WorkType, Agent: x.Agent, On: x.On, Needs: x.Needs}
	if h := m.Payload.Hints; h != nil {
		t.MaxMemoryMB, t.GPUVRAMMB = h.MaxMemoryMB, h.GPUVRAMMB
	}
	var known []registry.Agent
	for _, a := range d.agents.Agents(now) {
		if a.AgentType == m.ToAgent && (x.Agent == "" || x.Agent == string(a.AgentID)) {
			known = append(known, a)
		}
	}
	if x.Agent != "" {
		if err := subject.AgentID(x.Agent).Check(); err != nil {
			return "", nil, fault.Invalid(extension+"agent", "%v", err)
		}
		if a, ok := d.agents.Agent(subject.AgentID(x.Agent), now); ok && a.AgentType != m.ToAgent {
			return "", nil, fault.Invalid(extension+"agent", "agent %s is of type %s, not %s", x.Agent, a.AgentType, m.ToAgent)
		}
	}
	if flt := judge(m.Payload, known); flt != nil {
		return "", nil, flt
	}
	w := &world{now: now, agents: known, lapsed: func(subject.TaskID, subject.AgentID) lapse { return lapse{} }}
	switch {
	case x.Agent != "" && len(x.On) == 0 && len(x.Needs) == 0 && (len(known) == 0 || enough(known[0], t)):
		return x.Agent, nil, nil
	case w.anyoneCan(t) && x.Agent == "":
		return subject.Any, nil, nil
	}
	return subject.Held, &message.Hold{Reason: placement, Detail: "an agent that fits is being looked for"}, nil
}
