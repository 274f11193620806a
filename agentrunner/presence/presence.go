// Package presence shows an agent to the orchestrator: it registers by heartbeat and brings back what the orchestrator
// wants. It does not know what a task is, nor what is done about the answers.
package presence

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"chiffon/agentrunner/host"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// A RefusedError ends an agent: the orchestrator does not take it, and would not on a second try.
type RefusedError struct {
	Agent subject.AgentID
	Why   *fault.Fault
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the orchestrator refuses agent %s: %s", e.Agent, e.Why)
}

// A ReplacedError ends an agent because a process that started later has its agent_id.
type ReplacedError struct{ Agent subject.AgentID }

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("another agentrunner has taken the agent_id %s: give one of them another AGENTRUNNER_ID", e.Agent)
}

// Config says who is shown, and to whom. The zero value of a duration means its default.
type Config struct {
	Broker *broker.Client

	// Self is what every heartbeat says in the same words. The fields below fill in the others.
	Self message.Heartbeat

	// Now fills in what is in hand, what was refused, how the agent is, and what is wrong with it if something is.
	Now func(*message.Heartbeat)

	// Offers tells what the agent does, and a digest that changes when that does.
	Offers func() (offers []message.Offer, digest string)

	// Reply takes each answer that does not end the agent.
	Reply func(message.HeartbeatReply)

	// Changed has a heartbeat sent at once when a value comes, at most every 100 ms. Nil means never.
	Changed <-chan struct{}

	// Every is the time between two heartbeats. Default 5 s.
	Every time.Duration

	Log *slog.Logger
}

// A herald sends the heartbeats, one at a time.
type herald struct {
	cfg      Config
	digest   string // of the offers that the orchestrator has
	resend   bool   // it asks for them
	silent   time.Time
	answered bool
	shown    bool          // a heartbeat was sent, and may have been heard
	lease    time.Duration // as the orchestrator has it; 0 until it has said so
	host     *host.Host
}

// changesEvery is how often changes are told at most: there may be one for each of many requests.
const changesEvery = 100 * time.Millisecond

// remind is how often a log line says that there is no answer.
const remind = 10 * time.Second

// lastWord is how long an agent that ends tries to tell of it.
const lastWord = time.Second

// Run shows the agent until ctx ends, which is no error: a last heartbeat then says that it has stopped. A *RefusedError or
// *ReplacedError says that it must not go on.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Every <= 0 {
		cfg.Every = 5 * time.Second
	}
	poked := make(chan struct{}, 1)
	listening := make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	go func() {
		listening <- cfg.Broker.Serve(ctx, subject.Poke(cfg.Self.AgentID), func(context.Context, string, []byte) []byte {
			select {
			case poked <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	h := &herald{cfg: cfg}
	err := h.run(ctx, poked)
	stop()
	if err == nil {
		h.stopped(ctx)
	}
	if serve := <-listening; err == nil {
		err = serve
	}
	return err
}

func (h *herald) run(ctx context.Context, poked <-chan struct{}) error {
	h.host = host.New(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	changed, again := h.cfg.Changed, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
			changed, again = h.cfg.Changed, nil
			continue
		case <-timer.C:
		case <-poked:
		case <-changed:
			changed, again = nil, time.After(changesEvery)
		}
		if err := h.beat(ctx); err != nil {
			return err
		}
		timer.Reset(h.next())
	}
}

// next is when to be heard again: thrice in a lease at least, for who is not heard for a lease counts as silent.
func (h *herald) next() time.Duration {
	next := h.cfg.Every
	if h.lease > 0 {
		next = min(next, max(h.lease/3, changesEvery))
	}
	if h.resend || !h.answered {
		next = min(next, time.Second)
	}
	return next
}

// beat sends one heartbeat and passes on the answer.
func (h *herald) beat(ctx context.Context) error {
	hb := h.self()
	offers, digest := h.cfg.Offers()
	hb.WorkDigest = digest
	if h.resend || digest != h.digest || !h.answered {
		hb.WorkTypes = offers
	}
	data, err := json.Marshal(hb)
	if err != nil {
		return fmt.Errorf("heartbeat of agent %s: %w", hb.AgentID, err) // a mistake in the settings, nothing passes
	}
	h.shown = true
	reply, err := h.ask(ctx, hb.AgentID, data)
	if err != nil {
		if ctx.Err() == nil {
			h.silence(err)
		}
		return nil
	}
	switch {
	case reply.Error != nil && !reply.Error.Code.Retryable():
		return &RefusedError{hb.AgentID, reply.Error.Fault()}
	case reply.Error != nil:
		h.silence(reply.Error.Fault())
		return nil
	case reply.StopAll:
		return &ReplacedError{hb.AgentID}
	}
	if !h.answered {
		h.cfg.Log.Info("registered with the orchestrator", "work_types", len(offers))
	}
	h.answered, h.silent, h.digest, h.resend = true, time.Time{}, digest, reply.SendWork
	h.lease = time.Duration(reply.LeaseSeconds * float64(time.Second))
	h.cfg.Reply(reply)
	return nil
}

// self is what a heartbeat says now, but for what the agent does.
func (h *herald) self() message.Heartbeat {
	hb := h.cfg.Self
	hb.ProtocolVersions = message.Versions
	h.cfg.Now(&hb)
	hb.Resources = h.host.Look()
	return hb
}

func (h *herald) ask(ctx context.Context, id subject.AgentID, data []byte) (reply message.HeartbeatReply, err error) {
	answer, err := h.cfg.Broker.Request(ctx, subject.Heartbeat(id), data)
	if err != nil {
		return reply, err
	}
	return message.DecodeHeartbeatReply(answer)
}

// stopped tells that the agent has ended, so that nobody waits until it is silent. Whoever does not hear it sees that
// later: an end does not wait for a broker that is away.
func (h *herald) stopped(ctx context.Context) {
	if !h.shown || !h.cfg.Broker.Connected() {
		return // nobody knows of it, or nobody hears it
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	hb := h.self()
	hb.State, hb.Detail = message.StateStopped, ""
	_, hb.WorkDigest = h.cfg.Offers()
	data, err := json.Marshal(hb)
	if err == nil {
		_, err = h.ask(ctx, hb.AgentID, data)
	}
	if err != nil {
		h.cfg.Log.Info("nobody has heard that this agent ends; it counts as silent in a while", "error", err)
	}
}

// silence says, not too often, that no orchestrator answers. Work in hand goes on: the task log speaks for it.
func (h *herald) silence(err error) {
	h.answered = false
	if time.Since(h.silent) < remind {
		return
	}
	h.silent = time.Now()
	switch {
	case !h.cfg.Broker.Connected():
		h.cfg.Log.Warn("waiting for the broker", "error", err)
	case broker.NobodyAnswers(err):
		h.cfg.Log.Warn("waiting for the orchestrator: nobody answers heartbeats (is `orchestrator up` running on this broker?)")
	default:
		h.cfg.Log.Warn("waiting for the orchestrator", "error", err)
	}
}
