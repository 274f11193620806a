// Package gateway answers agents over the broker: their heartbeats and what they ask. It decides nothing: it checks who
// speaks, and passes on.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/registry"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/together"
)

// A Gateway serves agents. Run does it.
type Gateway struct {
	client     *broker.Client
	agents     *registry.Registry
	dispatcher *dispatch.Dispatcher
	gate       *gate.Gate
	log        *slog.Logger
}

// New returns a gateway that serves nobody until Run.
func New(client *broker.Client, agents *registry.Registry, dispatcher *dispatch.Dispatcher, g *gate.Gate, log *slog.Logger) *Gateway {
	return &Gateway{client: client, agents: agents, dispatcher: dispatcher, gate: g, log: log}
}

// Run answers until ctx ends.
func (g *Gateway) Run(ctx context.Context) error {
	return together.Run(ctx,
		func(ctx context.Context) error { return g.client.Serve(ctx, subject.AllHeartbeats, g.heartbeat) },
		func(ctx context.Context) error { return g.client.Serve(ctx, subject.AllCalls, g.call) },
	)
}

// heartbeat takes one in and answers it.
func (g *Gateway) heartbeat(ctx context.Context, subj string, data []byte) []byte {
	reply, err := g.heard(ctx, subject.AgentOf(subj), data)
	if err != nil {
		flt, ok := errors.AsType[*fault.Fault](err)
		if !ok && ctx.Err() != nil {
			return nil // it is stopping
		}
		if !ok {
			g.log.Error("heartbeat is not answered", "subject", subj, "error", err)
			return nil // it comes again
		}
		g.log.Warn("heartbeat is refused", "agent_id", subject.AgentOf(subj), "error_code", int(flt.Code), "error", flt.Message)
		reply = message.HeartbeatReply{Error: new(message.FailureOf(flt))}
	}
	return encode(reply)
}

func (g *Gateway) heard(ctx context.Context, sender subject.AgentID, data []byte) (message.HeartbeatReply, error) {
	hb, err := message.DecodeHeartbeat(data)
	if err != nil {
		return message.HeartbeatReply{}, err
	}
	if hb.AgentID != sender {
		return message.HeartbeatReply{}, fault.New(fault.AuthenticationFailed, "agent_id %q stands on the subject of %q", hb.AgentID, sender).
			With("agent_id", string(sender)).With("token_status", "sender disagrees with subject")
	}
	version, err := message.NegotiateVersion(hb.ProtocolVersions)
	if err != nil {
		return message.HeartbeatReply{}, err
	}
	verdict := g.agents.Heard(hb, time.Now())
	if verdict.Refused != nil {
		return message.HeartbeatReply{}, verdict.Refused
	}
	if verdict.Restarted {
		g.log.Info("agent is here", "agent_id", hb.AgentID, "agent_type", hb.AgentType, "host", hb.Host, "version", hb.Version, "boot", hb.Boot)
	}
	consumers, err := g.dispatcher.Consumers(ctx, hb.AgentID, hb.AgentType)
	if err != nil {
		return message.HeartbeatReply{}, err
	}
	reply := message.HeartbeatReply{
		ProtocolVersion: version,
		LeaseSeconds:    g.dispatcher.Lease().Seconds(),
		Cancel:          g.dispatcher.Cancelled(hb.Running),
		SendWork:        verdict.SendWork,
		StopAll:         verdict.StopAll,
		Consumers:       consumers,
	}
	g.gate.Tell(hb.AgentID, time.Now(), &reply)
	return reply, nil
}

// call answers what an agent asks.
func (g *Gateway) call(ctx context.Context, subj string, data []byte) []byte {
	switch verb := subject.VerbOf(subj); verb {
	case "get":
		return encode(g.get(ctx, data))
	default:
		return encode(refused(fault.Invalid("verb", "%q is nothing that can be asked: get is", verb)))
	}
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values only
	}
	return data
}
