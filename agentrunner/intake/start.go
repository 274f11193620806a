package intake

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/agentrunner/spool"
	"chiffon/agentrunner/work"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A job is a request in hand with whoever does it.
type job struct {
	entry  tasklog.Entry
	worker work.Worker
	limit  time.Duration // max_duration_seconds; 0 is none
	wrong  *fault.Fault  // why it cannot be done: the outcome of an attempt that never begins
	began  time.Time     // start of the task's first attempt
}

// deliver judges a message from a work subject: it begins an attempt, which may go on until ctx ends, or answers it at
// once. True when a slot was filled.
func (i *Intake) deliver(ctx context.Context, m jetstream.Msg) bool {
	if free, _, _ := i.free(); free == 0 {
		i.answer(m, replyBack)
		return false
	}
	e, err := entry(m)
	switch {
	case err != nil: // no message of a stream: nothing to acknowledge either
		i.cfg.Log.Error("message without its place in the stream", "subject", m.Subject(), "error", err)
		return false
	case e.Err != nil || !e.Kind.IsRequest() || e.Subject.Type != i.cfg.Type:
		// It can't ever be started: whatever it is, the orchestrator sees it in the log and ends the task.
		if i.junk.due(time.Minute) {
			i.cfg.Log.Warn("message is no request for this agent", "subject", m.Subject(), "seq", e.Seq, "error", e.Err)
		}
		i.answer(m, replyAck)
		return false
	}
	t, j, flt := i.judge(ctx, e)
	if flt != nil {
		i.refuse(m, e, flt)
		return false
	}
	r := spool.Record{
		Task: e.Subject.Task, Attempt: e.Attempt + 1, Allowed: max(t.Attempts, 1), Boot: i.cfg.Spool.Boot,
		WorkType: t.Name, Trace: e.Message.TraceID, Request: e.Message.RequestID,
	}
	if h := e.Message.Request.Hints; h != nil {
		r.MemoryMB, r.VRAMMB = h.MaxMemoryMB, h.GPUVRAMMB
	}
	s := i.newSlot(r)
	if r := i.fill(s, e.Seq, t.Concurrency); r != replyTaken {
		i.answer(m, r)
		return false
	}
	i.attempts.Go(func() {
		defer i.empty(s)
		if i.start(ctx, s, &j, m) {
			i.attempt(ctx, s, j)
		}
	})
	return true
}

// judge finds out how a request is done here. A fault says that it cannot be begun here now: another agent may be able
// to, and whether one is there is for the orchestrator to find. What nobody could do is begun, and fails.
func (i *Intake) judge(ctx context.Context, e tasklog.Entry) (t *work.Type, j job, refused *fault.Fault) {
	j.entry = e
	request := *e.Message.Request
	t, _ = i.cfg.Work().Type(request.WorkType)
	var err error
	j.worker, err = i.cfg.Work().Prepare(request, submitter(e))
	if flt, ok := errors.AsType[*fault.Fault](err); ok {
		j.wrong = flt
	} else if err != nil {
		j.wrong = fault.New(fault.AgentUnavailable, "the request cannot be prepared: %v", err).With("agent_id", string(i.cfg.Agent))
	}
	if t == nil || j.wrong != nil && j.wrong.Code == fault.UnsupportedWorkType {
		return t, j, cmp.Or(j.wrong, fault.Unsupported(request.WorkType, nil))
	}
	j.limit = t.MaxDuration
	if h := request.Hints; h != nil {
		if d := time.Duration(h.MaxDurationSeconds) * time.Second; d > 0 && (j.limit == 0 || d < j.limit) {
			j.limit = d
		}
		refused = i.lacking(ctx, *h)
	}
	return t, j, refused
}

func entry(m jetstream.Msg) (tasklog.Entry, error) {
	meta, err := m.Metadata()
	if err != nil {
		return tasklog.Entry{}, err
	}
	return tasklog.Read(m.Subject(), m.Headers(), m.Data(), meta.Sequence.Stream, meta.Timestamp), nil
}

func submitter(e tasklog.Entry) string {
	if x := e.Message.Custom.Chiffon; x != nil {
		return x.SubmittedBy
	}
	return ""
}

// start appends the started entry of an attempt and answers the message once that is stored or refused: from there
// the log speaks for the attempt. False when the attempt is not ours.
func (i *Intake) start(ctx context.Context, s *slot, j *job, m jetstream.Msg) bool {
	for tail := j.entry.Seq; ; {
		draft, err := i.started(s)
		if err != nil {
			s.log.Error("started entry cannot be written", "error", err)
			i.answer(m, replyLater)
			return false
		}
		draft = draft.At(tail, s.attempt, s.boot)
		s.record.Entry, s.record.Expect = draft.ID, tail
		// before the append: a crash here must find that there may be a started entry
		if err := i.put(s); err != nil {
			s.log.Debug("request is handed back: no work without a journal", "error", err)
			i.answer(m, replyBack)
			return false
		}
		s.lease.Store(&lease{from: time.Now(), length: i.lease()})
		seq, err := i.cfg.Broker.Append(ctx, draft)
		switch {
		case err == nil:
			s.record.Started = seq
			i.markStarted(s)
			i.answer(m, replyAck)
			i.history(ctx, s, j)
			s.log.Info("task started", "work_type", s.workType)
			return true
		case ctx.Err() != nil, errors.Is(err, nats.ErrConnectionClosed): // its fate is unknown: the next life asks
			return false
		case !errors.Is(err, broker.ErrRefused):
			s.log.Error("task cannot be started", "error", err)
			i.drop(s, m, replyLater)
			return false
		}
		st, err := i.foldSoon(ctx, s)
		switch {
		case err != nil:
			s.log.Debug("start was refused, and the log cannot be read", "error", err)
			i.drop(s, m, replyLater)
			return false
		case st.Phase != tasklog.PhaseQueued || st.RequestSeq != j.entry.Seq:
			// a request that is not the state's request can never be started again
			s.log.Debug("request is settled already", "phase", st.Phase.String())
			i.drop(s, m, replyAck)
			return false
		}
		tail = st.TailSeq // entries that do not count stand behind the request
	}
}

// drop forgets an attempt whose started entry is certainly not in the log.
func (i *Intake) drop(s *slot, m jetstream.Msg, r reply) {
	i.remove(s)
	i.answer(m, r)
}

func (i *Intake) remove(s *slot) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.unkept = nil
	if err := i.cfg.Spool.Remove(s.task); err != nil {
		s.log.Error("record stays", "error", err)
	}
}

func (i *Intake) started(s *slot) (tasklog.Draft, error) {
	m := message.New(i.cfg.Type, subject.Orchestrator, s.record.Trace, s.record.Request,
		message.WorkStatus{TaskID: s.task, Status: message.StatusRunning})
	m.Custom = message.Custom{AgentID: i.cfg.Agent, Chiffon: &message.Extension{
		Attempt: s.attempt, Attempts: s.record.Allowed, Host: i.cfg.Host,
	}}
	return tasklog.Write(tasklog.Started, s.task, i.own(s), m)
}

// own is the subject of this agent's entries about a task.
func (i *Intake) own(s *slot) string { return subject.Event(s.task, string(i.cfg.Agent)) }
