package intake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

const orchestrator = subject.AgentType(subject.Orchestrator)

// keep spools an outcome with the id and the expectation it is appended with: under a new id after a crash, the
// recorded end would be taken for somebody else's.
func (i *Intake) keep(s *slot, d tasklog.Draft) {
	s.record.Outcome = &d
	i.putOutcome(s)
}

// tell appends a kept outcome, adapts it to what the log has become meanwhile, and forgets the attempt once the log
// has it or it is reported as late. When ctx ends before, it stays in the spool.
func (i *Intake) tell(ctx context.Context, s *slot, d tasklog.Draft) {
	for {
		_, err := i.cfg.Broker.Append(ctx, d)
		switch {
		case err == nil:
			s.log.Info("task attempt ended", "outcome", d.Kind)
			i.remove(s)
			return
		case ctx.Err() != nil:
			s.log.Warn("outcome is kept for the next start", "outcome", d.Kind, "error", err)
			return
		case !errors.Is(err, broker.ErrRefused): // the log is full or missing; the outcome is not lost for it
			s.log.Error("outcome is not taken", "outcome", d.Kind, "error", err)
			if !sleep(ctx, 2*retryEvery) {
				return
			}
			continue
		}
		st, err := i.fold(ctx, s)
		if err != nil {
			s.log.Warn("outcome is kept for the next start", "outcome", d.Kind, "error", err)
			return
		}
		next, ok, err := i.adapt(s, st, d)
		if err != nil {
			s.log.Error("outcome cannot be written", "outcome", d.Kind, "error", err)
			return
		}
		if !ok {
			i.late(ctx, s, d)
			return
		}
		d = next
		i.keep(s, d)
	}
}

// adapt makes of a refused outcome the one that the state takes, under a new id; ok is false when it takes none.
func (i *Intake) adapt(s *slot, st tasklog.State, d tasklog.Draft) (next tasklog.Draft, ok bool, err error) {
	if !st.Mine(string(i.cfg.Agent), s.attempt, s.boot) {
		return d, false, nil
	}
	kind := d.Kind
	switch st.Phase {
	case tasklog.PhaseRunning: // entries that do not count stand before it
	case tasklog.PhaseCancelling:
		// The end tells what happened: cancelled only if this runner stopped the work. Nothing is tried again.
		if kind == tasklog.AttemptFailed {
			kind = tasklog.Failed
			if s.record.Stopped {
				kind = tasklog.Cancelled
			}
		}
	case tasklog.PhaseFailed, tasklog.PhaseQueued:
		// taken away for silence, and nobody else has begun: an end by its nature saves a second execution
		if !st.Silent || kind != tasklog.Succeeded && kind != tasklog.Failed {
			return d, false, nil
		}
	default:
		return d, false, nil
	}
	next, err = again(d, kind)
	return next.At(st.TailSeq, s.attempt, s.boot), true, err
}

// again writes the message of a draft anew, with another id and, for a failure that is not tried again, as a result.
func again(d tasklog.Draft, kind tasklog.Kind) (tasklog.Draft, error) {
	m, err := message.Read(d.Data)
	if err != nil {
		return d, fmt.Errorf("read the outcome of task %s: %w", d.Task, err)
	}
	m.MessageID = message.NewUUID()
	if kind != d.Kind {
		result := &message.WorkResult{TaskID: d.Task, Status: message.ResultFailed, ExitCode: 1, Output: m.Failure.Fault().Error()}
		if kind == tasklog.Cancelled {
			result.Status = message.ResultCancelled
		}
		m.Kind, m.Failure, m.Result = message.KindWorkResult, nil, result
		if m.Custom.Chiffon != nil {
			m.Custom.Chiffon.RetryAt = nil
		}
	}
	d.Kind, d.ID = kind, string(m.MessageID)
	if d.Data, err = m.Encode(); err != nil {
		return d, fmt.Errorf("encode the outcome of task %s: %w", d.Task, err)
	}
	return d, nil
}

// late reports an outcome that the log does not take any more in a status, until that is stored.
func (i *Intake) late(ctx context.Context, s *slot, d tasklog.Draft) {
	text := string(d.Kind)
	x := &message.Extension{Attempt: s.attempt, Late: true, Outcome: string(d.Kind), Host: i.cfg.Host}
	custom := message.Custom{AgentID: i.cfg.Agent, Chiffon: x}
	if m, err := message.Read(d.Data); err == nil {
		custom.OutputBytes = m.Custom.OutputBytes
		if end := m.Custom.Chiffon; end != nil {
			x.StatusCount, x.Begun = end.StatusCount, end.Begun
		}
		switch {
		case m.Result != nil:
			x.ExitCode = new(m.Result.ExitCode)
			text = fmt.Sprintf("%s, exit code %d, %d bytes of output", d.Kind, m.Result.ExitCode, m.Custom.OutputBytes)
		case m.Failure != nil:
			x.ErrorCode = m.Failure.Code
			text = fmt.Sprintf("%s, %s", d.Kind, m.Failure.Fault())
		}
	}
	s.log.Warn("outcome came too late for the log", "outcome", text)
	m := message.New(i.cfg.Type, orchestrator, s.record.Trace, s.record.Request, message.WorkStatus{
		TaskID: s.task, Status: message.StatusRunning, Step: &message.Step{Number: 1, Name: "late outcome: " + text},
	})
	m.Custom = custom
	data, err := m.Encode()
	if err != nil {
		s.log.Error("late outcome cannot be written", "error", err)
		return
	}
	s.record.Outcome, s.record.Late = nil, data
	i.putOutcome(s)
	i.tellLate(ctx, s)
}

func (i *Intake) tellLate(ctx context.Context, s *slot) {
	for {
		r, err := i.cfg.Broker.Send(subject.Status(s.task, i.cfg.Agent), s.record.Late)
		if err == nil {
			wait, cancel := context.WithTimeout(ctx, 5*time.Second)
			err = r.Wait(wait)
			cancel()
		}
		if err == nil {
			i.remove(s)
			return
		}
		s.log.Debug("late outcome is sent again", "error", err)
		if !sleep(ctx, retryEvery) {
			return
		}
	}
}

// sleep waits; false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// died is what to say of an attempt whose runner died with it.
func (i *Intake) died(s *slot) *fault.Fault {
	text := "agent %s was restarted before the work began"
	if s.record.Begun {
		text = "agent %s died while the work ran"
	}
	if s.record.Begun && s.record.Allowed <= 1 {
		text = "agent %s died while the work ran, and nobody knows how the work ended"
	}
	return fault.New(fault.AgentUnavailable, text, i.cfg.Agent).
		With("agent_id", string(i.cfg.Agent)).With("last_heartbeat", nil).With("begun", s.record.Begun)
}
