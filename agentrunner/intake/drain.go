package intake

import (
	"context"
	"errors"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/work"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
)

// How long work has that is stopped at once, and how long it may then take to tell of it.
const (
	shortGrace  = 2 * time.Second
	shortReport = 5 * time.Second
)

// Control takes what the orchestrator says in answer to a heartbeat.
func (i *Intake) Control(r message.HeartbeatReply) {
	i.mu.Lock()
	before := i.control
	i.control = r
	i.told++
	for _, id := range r.Cancel {
		if s := i.slots[id]; s != nil {
			s.lookNow()
		}
	}
	if i.until != nil {
		i.until.Stop()
		i.until = nil
	}
	if r.Drain && r.DrainUntil != nil {
		i.until = time.AfterFunc(time.Until(*r.DrainUntil), i.drained)
	}
	i.mu.Unlock()
	i.say(before, r)
	if r.Drain != before.Drain { // State says so
		i.cfg.Changed()
	}
	i.wake()
}

// say logs what has changed in what the orchestrator wants of this agent.
func (i *Intake) say(before, now message.HeartbeatReply) {
	word := func(r message.HeartbeatReply) string {
		switch {
		case r.Drain:
			return "drain"
		case r.PausedUntil != nil:
			return "pause"
		}
		return ""
	}
	switch was, is := word(before), word(now); {
	case is == was && (is == "" || now.Notice == before.Notice):
	case is == "drain":
		i.cfg.Log.Info("the orchestrator wants no new work taken until it says otherwise", "notice", now.Notice, "drain_until", now.DrainUntil)
	case is == "pause":
		i.cfg.Log.Info("the orchestrator has paused this agent", "notice", now.Notice, "paused_until", now.PausedUntil)
	default:
		i.cfg.Log.Info("the orchestrator wants work taken again")
	}
}

// drain takes no new work from now on, and says so.
func (i *Intake) drain() {
	i.mu.Lock()
	already := i.draining
	i.draining = true
	i.mu.Unlock()
	if !already {
		i.cfg.Changed()
	}
}

// drained stops what still runs at the end of a drain that the orchestrator wants. The agent itself goes on.
func (i *Intake) drained() {
	i.mu.Lock()
	c := i.control
	i.mu.Unlock()
	if !c.Drain || c.DrainUntil == nil || time.Now().Before(c.DrainUntil.Round(0)) {
		return // a later answer has changed that
	}
	i.haltAll(child.DefaultGrace, "agent %s was drained, and its time for that was over while the work ran")
}

// haltAll stops whatever runs, as an agent that is unavailable: what may be repeated moves on at once. No longer than
// grace, whatever a work type wants.
func (i *Intake) haltAll(grace time.Duration, why string) {
	for _, s := range i.held() {
		i.halt(s, &work.Stop{
			Reason: "the runner stops", Grace: grace,
			Fault: fault.New(fault.AgentUnavailable, why, i.cfg.Agent).
				With("agent_id", string(i.cfg.Agent)).With("last_heartbeat", time.Now().UTC().Format(time.RFC3339)),
		})
	}
}

// halt has an attempt's work stopped, or one that is being stopped killed sooner.
func (i *Intake) halt(s *slot, stop *work.Stop) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := time.Now().Add(stop.Grace)
	if !s.killAt.IsZero() && !at.Before(s.killAt) {
		return // it was told as much already
	}
	s.killAt = at
	select {
	case <-s.halt: // not heard yet, and overtaken
	default:
	}
	s.halt <- stop
}

// finish sees what is in hand to its end: it may finish, then it is stopped, then it is left in the spool.
func (i *Intake) finish(ctx context.Context, endLog context.CancelFunc) {
	i.drain()
	done := make(chan struct{})
	go func() {
		i.attempts.Wait()
		close(done)
	}()
	drain := i.cfg.Drain
	if errors.Is(context.Cause(ctx), ErrAtOnce) {
		drain = 0
	}
	if n := len(i.held()); n > 0 {
		i.cfg.Log.Info("waiting for running work", "tasks", n, "at_most", drain.String())
	}
	const why = "agent %s was stopped while the work ran"
	now := i.cfg.Now
	end, hurried := within(done, drain, now)
	if end {
		return
	}
	if !hurried {
		i.haltAll(child.DefaultGrace, why)
		if end, hurried = within(done, i.cfg.Report, now); end {
			return
		}
	}
	if hurried {
		i.cfg.Log.Info("running work is stopped at once", "tasks", len(i.held()))
		i.haltAll(shortGrace, why)
		if end, _ = within(done, min(shortReport, i.cfg.Report), nil); end {
			return
		}
	}
	for _, s := range i.held() {
		s.log.Warn("outcome is kept for the next start")
	}
	endLog()
	<-done
}

// within waits for done; hurried says that it was wanted sooner.
func within(done <-chan struct{}, d time.Duration, now <-chan struct{}) (end, hurried bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true, false
	case <-now:
		return false, true
	case <-t.C:
	}
	return false, false
}
