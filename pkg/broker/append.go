package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/cut"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// ErrRefused comes back from Append when another entry already follows the tail that the draft expects. It does not
// when the draft itself is stored, whatever happened to the reply.
var ErrRefused = errors.New("another entry already follows this tail")

// JetStream's codes that Append knows.
const (
	codeWrongLastSequence     = 10071 // the expectation does not hold
	codeAppendUnderWay        = 10164 // another append of the subject is under way in a cluster
	codeTemporarily           = 10008 // no leader just now, or it is starting
	codeInsufficientResources = 10023 // the store is full
	codeNoSpace               = 10047
	codeMaximumBytes          = 10077 // the stream is full
)

// retryEvery is the pause between two tries of an append whose fate is unknown.
const retryEvery = 250 * time.Millisecond

// Append stores one entry of a task's log, at the place it expects or nowhere, and returns its sequence. It gives up
// only when ctx ends, or Close ends the connection: the entry's fate may then be unknown, and the caller has to ask
// the log. Repeating the same draft is harmless: a second copy is refused by its own expectation, and the first found
// by its id. One append of an agent is under way per task; orchestrators may be many.
//
//	err == nil     stored, once
//	ErrRefused     not stored, and never will be: read the log and decide anew
//	other          ctx ended (its text says whether the fate is unknown), or the broker refuses everybody (Full: no
//	               room) or this message (too large): not stored
func (c *Client) Append(ctx context.Context, d tasklog.Draft) (uint64, error) {
	m := &nats.Msg{Subject: d.Subject, Header: nats.Header(d.Header()), Data: d.Data}
	unknown := "" // or what to say of an earlier try that may be stored, or may still arrive
	for {
		cut.Before("append", string(d.Kind))
		seq, err := c.store(ctx, m)
		cut.After("append", string(d.Kind))
		if err == nil {
			return seq, nil
		}
		api, answered := errors.AsType[*jetstream.APIError](err)
		switch {
		case answered && api.ErrorCode == codeWrongLastSequence:
			return c.recognise(ctx, d)
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
			return 0, fmt.Errorf("append %s to task %s%s: %w", d.Kind, d.Task, unknown, err)
		case answered && !slices.Contains([]jetstream.ErrorCode{codeAppendUnderWay, codeTemporarily}, api.ErrorCode):
			if unknown == "" {
				return 0, fmt.Errorf("append %s to task %s: %w", d.Kind, d.Task, err)
			}
			// A full cluster says so before it looks at the expectation. Only the log can say of the earlier try.
			if seq, fate, err := c.find(ctx, d); err == nil && fate == fateStored {
				return seq, nil
			}
		case !answered && !errors.Is(err, jetstream.ErrNoStreamResponse):
			unknown = ", fate unknown"
		}
		// Sending it again decides it: stored now, or refused and then recognised.
		c.log.Debug("append is repeated", "task_id", d.Task, "entry", d.ID, "error", err)
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("append %s to task %s%s: %w (last: %w)", d.Kind, d.Task, unknown, context.Cause(ctx), err)
		case <-time.After(retryEvery):
		}
	}
}

func (c *Client) store(ctx context.Context, m *nats.Msg) (uint64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	ack, err := c.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// recognise answers whether a refused draft was stored by an earlier try.
func (c *Client) recognise(ctx context.Context, d tasklog.Draft) (uint64, error) {
	for {
		seq, fate, err := c.find(ctx, d)
		switch {
		case err != nil, fate == fateOpen: // open: read from a server that lags behind the one which refused
		case fate == fateStored:
			return seq, nil
		default:
			return 0, ErrRefused
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("append %s to task %s, fate unknown: %w", d.Kind, d.Task, context.Cause(ctx))
		case <-time.After(retryEvery):
		}
	}
}

// What the log says of a draft.
type fate int

const (
	fateOpen   fate = iota // nothing follows its tail yet
	fateStored             // it does
	fateOther              // another entry does, as far as can be seen
)

// find looks for a draft in the log. An agent reads the last entry on its own subject, the only thing that it may
// read: it has one append under way per task, so an entry of its own can only stand there last. Orchestrators share
// a subject: they read what follows the tail, and that is the draft or no copy of it can ever be stored.
func (c *Client) find(ctx context.Context, d tasklog.Draft) (uint64, fate, error) {
	if p, ok := subject.Parse(d.Subject); ok && p.Writer != subject.Orchestrator {
		e, found, err := c.Last(ctx, d.Subject)
		if err == nil && found && e.ID == d.ID {
			return e.Seq, fateStored, nil
		}
		return 0, fateOther, err
	}
	next, _, err := c.get(ctx, subject.TasksStream, subject.Task(d.Task), d.Expect+1, 1)
	switch {
	case err != nil || len(next) == 0:
		return 0, fateOpen, err
	case next[0].Entry().ID == d.ID:
		return next[0].Seq, fateStored, nil
	}
	return 0, fateOther, nil
}

// Full reports whether an append failed because there is no room for it.
func Full(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains([]jetstream.ErrorCode{codeMaximumBytes, codeNoSpace, codeInsufficientResources}, api.ErrorCode)
}

// A Receipt is a message on its way into a stream.
type Receipt struct{ ack jetstream.PubAckFuture }

// Send puts a message into a stream without waiting; the receipt tells its fate. It blocks while too many are under
// way.
func (c *Client) Send(subj string, data []byte) (Receipt, error) {
	cut.Before("publish", subj)
	f, err := c.js.PublishAsync(subj, data, jetstream.WithStallWait(c.timeout))
	if err != nil {
		return Receipt{}, fmt.Errorf("publish %s: %w", subj, err)
	}
	return Receipt{f}, nil
}

// Wait returns nil when the message is stored. After any error it may be stored or not: send it again, readers drop
// what they have seen. Call it once.
func (r Receipt) Wait(ctx context.Context) error {
	select {
	case <-r.ack.Ok():
		cut.After("publish", r.ack.Msg().Subject)
		return nil
	case err := <-r.ack.Err():
		return fmt.Errorf("publish %s: %w", r.ack.Msg().Subject, err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
