package intake

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/report"
	"chiffon/agentrunner/work"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/retry"
	"chiffon/pkg/tasklog"
)

// attempt does the work of a started entry, and tells the log how it ended.
func (i *Intake) attempt(ctx context.Context, s *slot, j job) {
	if j.wrong != nil {
		i.end(ctx, s, ending{outcome: work.Outcome{Status: message.ResultFailed, Fault: j.wrong}}, nil)
		return
	}
	if stop := i.ready(ctx, s); stop != nil {
		i.end(ctx, s, ending{outcome: never(stop)}, nil)
		return
	}
	s.record.Begun, s.record.BegunAt = true, time.Now()
	if err := i.put(s); err != nil { // before the fork: a crash from here on may have done something
		flt := fault.New(fault.AgentUnavailable, "agent %s cannot write its journal, so the work was not begun: %v", i.cfg.Agent, err).
			With("agent_id", string(i.cfg.Agent)).With("last_heartbeat", nil)
		i.end(ctx, s, ending{outcome: work.Outcome{Status: message.ResultFailed, Fault: flt}}, nil)
		return
	}
	r := report.Start(i.reports(s))
	outcome := i.work(ctx, s, j, r)
	if outcome.Note != "" {
		r.Output([]byte(outcome.Note + "\n"))
	}
	e := ending{outcome: outcome, summary: r.Close(), begun: true}
	flt := outcome.Fault
	e.final = flt != nil && (flt.Code == fault.Timeout && j.limit > 0 && time.Since(j.began) >= j.limit ||
		flt.Context["limit_name"] == "max_output") // it would write as much again
	i.end(ctx, s, e, r)
}

// ready makes sure, before the work begins, that the attempt is still ours, and that this runner may still begin it;
// nil when that is so.
func (i *Intake) ready(ctx context.Context, s *slot) *work.Stop {
	for s.lease.Load().left(time.Now()) <= 0 {
		h, e := i.confirm(ctx, s)
		switch h {
		case holdCancelling:
			s.stop = stopped{byCancel, e.Seq}
			return i.cancelled(s, e)
		case holdLost:
			s.stop.why = byLoss
			return &work.Stop{Reason: "the attempt was taken away from this agent"}
		case holdMine:
		case holdUnknown:
			select {
			case <-ctx.Done():
				return &work.Stop{Reason: "the runner stops"}
			case stop := <-s.halt:
				s.stop.why = byRunner
				return stop
			case <-time.After(retryEvery):
			}
		}
	}
	select {
	case stop := <-s.halt:
		s.stop.why = byRunner
		return stop
	default:
		return nil
	}
}

// never is the outcome of work that did not begin.
func never(stop *work.Stop) work.Outcome {
	o := work.Outcome{Status: message.ResultCancelled, Note: stop.Reason, Fault: stop.Fault}
	if o.Fault != nil {
		o.Status = message.ResultFailed
	}
	return o
}

// A leash holds running work.
type leash struct {
	stop    context.CancelCauseFunc
	over    chan struct{}                 // closed when nothing of the work runs any more
	process atomic.Pointer[child.Process] // nil while there is none
}

// end ends what is being stopped sooner, or by another signal.
func (l *leash) end(signal syscall.Signal, grace time.Duration) {
	if p := l.process.Load(); p != nil {
		p.Stop(signal, grace)
	}
}

// work runs the work and holds its lease meanwhile.
func (i *Intake) work(ctx context.Context, s *slot, j job, out work.Sink) work.Outcome {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	l := &leash{stop: stop, over: make(chan struct{})}
	var watched sync.WaitGroup
	watched.Go(func() { i.watch(ctx, s, l) }) // also while the work is being stopped
	outcome := j.worker.Work(working, work.Attempt{
		Task: s.task, Number: s.attempt, Agent: i.cfg.Agent, Envelope: j.entry.Message.Envelope,
		Request: *j.entry.Message.Request, Dir: i.cfg.Dir, Began: j.began, Keep: i.cfg.Spool.Keep(s.task),
		Owner: i.owner(),
		Started: func(p *child.Process) {
			if s.record.Allowed > 1 {
				p.Deadline(s.lease.Load().left(time.Now()))
			}
			l.process.Store(p)
		},
	}, out)
	close(l.over)
	watched.Wait()
	return outcome
}

// An ending is what an attempt came to.
type ending struct {
	outcome work.Outcome
	summary report.Summary
	begun   bool
	final   bool // not to be tried again, whatever the code says
}

// kind is the entry that tells of the ending, and when the next attempt is due if there is one.
func (s *slot) kind(e ending) (kind tasklog.Kind, after time.Duration) {
	flt := e.outcome.Fault
	switch {
	case flt != nil:
		after, again := retry.Due(flt.Code, s.attempt, s.record.Allowed)
		if again && !e.final && s.stop.why != byCancel {
			return tasklog.AttemptFailed, after
		}
		return tasklog.Error, 0
	case e.outcome.Status == message.ResultSuccess:
		return tasklog.Succeeded, 0
	case e.outcome.Status == message.ResultCancelled:
		return tasklog.Cancelled, 0
	}
	return tasklog.Failed, 0
}

// draft writes the entry of an ending.
func (i *Intake) draft(s *slot, e ending) (tasklog.Draft, error) {
	kind, after := s.kind(e)
	x := &message.Extension{Attempt: s.attempt, StatusCount: e.summary.Statuses, Begun: e.begun}
	custom := message.Custom{AgentID: i.cfg.Agent, OutputBytes: e.summary.OutputBytes, Chiffon: x}
	if flt := e.outcome.Fault; flt != nil {
		if kind == tasklog.AttemptFailed {
			x.RetryAt = new(time.Now().UTC().Add(after))
		}
		m := message.New(i.cfg.Type, orchestrator, s.record.Trace, s.record.Request, message.FailureOf(i.whole(s, flt)))
		m.Custom = custom
		return tasklog.Write(kind, s.task, i.own(s), m)
	}
	text, encoding := message.Text(e.summary.Tail)
	m := message.New(i.cfg.Type, orchestrator, s.record.Trace, s.record.Request, message.WorkResult{
		TaskID: s.task, Status: e.outcome.Status, ExitCode: e.outcome.ExitCode, Output: text, OutputEncoding: encoding,
		ResourcesUsed: e.outcome.Resources,
	})
	m.Custom = custom
	return tasklog.Write(kind, s.task, i.own(s), m)
}

// whole is a fault with what the protocol wants of its code in the context: where the fault was found, not all of that is
// known.
func (i *Intake) whole(s *slot, flt *fault.Fault) *fault.Fault {
	flt = flt.Clone().With("task_id", string(s.task))
	know := map[string]any{}
	switch flt.Code {
	case fault.Timeout:
		know["attempted_retries"], know["last_attempt"] = max(0, s.attempt-1), s.filled.UTC().Format(time.RFC3339)
	case fault.AgentUnavailable:
		know["agent_id"], know["last_heartbeat"] = string(i.cfg.Agent), nil
	}
	for name, value := range know {
		if _, ok := flt.Context[name]; !ok {
			flt = flt.With(name, value)
		}
	}
	return flt
}

// end tells the log of an ending. The order is: outcome to disk, output to the stream, outcome to the log, record off
// the disk. A crash between any two is healed by the next start, which does the rest.
func (i *Intake) end(ctx context.Context, s *slot, e ending, r *report.Reporter) {
	draft, err := i.draft(s, e)
	if flt, ok := errors.AsType[*fault.Fault](err); ok { // what was to be told is no valid message: tell that
		e.outcome.Fault = flt
		draft, err = i.draft(s, e)
	}
	if err != nil {
		s.log.Error("outcome cannot be written", "error", err)
		return
	}
	s.record.Stopped = s.stop.why != notStopped || e.outcome.Status == message.ResultCancelled
	tail := max(s.record.Started, s.stop.cancel)
	draft = draft.At(tail, s.attempt, s.boot)
	i.keep(s, draft)
	if r != nil {
		if missing := r.Confirm(ctx); missing > 0 {
			s.log.Warn("output is not stored whole", "statuses_missing", missing)
		}
	}
	i.tell(ctx, s, draft)
}
