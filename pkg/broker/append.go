package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/tasklog"
)

// ErrRefused comes back from Append when another entry already follows the tail that the draft expects. It does not
// when the draft itself is stored, whatever happened to the reply.
var ErrRefused = errors.New("another entry already follows this tail")

// JetStream's codes that Append knows.
const (
	codeWrongLastSequence = 10071 // the expectation does not hold
	codeAppendUnderWay    = 10164 // another append of the subject is under way in a cluster
	codeMaximumBytes      = 10077
	codeNoSpace           = 10047
)

// retryEvery is the pause between two tries of an append whose fate is unknown.
const retryEvery = 250 * time.Millisecond

// Append stores one entry of a task's log, at the place it expects or nowhere, and returns its sequence. It gives up
// only when ctx ends: then the entry's fate is unknown and the caller has to ask the log. Repeating the same draft
// is harmless: a second copy is refused by its own expectation, and then found by its id.
//
//	err == nil     stored, once
//	ErrRefused     not stored, and never will be: read the log and decide anew
//	other          ctx ended (fate unknown), or the broker refuses everybody (stream full, missing): not stored
func (c *Client) Append(ctx context.Context, d tasklog.Draft) (uint64, error) {
	m := &nats.Msg{Subject: d.Subject, Header: nats.Header(d.Header()), Data: d.Data}
	for {
		seq, err := c.store(ctx, m)
		if err == nil {
			return seq, nil
		}
		api, refused := errors.AsType[*jetstream.APIError](err)
		switch {
		case refused && api.ErrorCode == codeWrongLastSequence:
			return c.recognise(ctx, d)
		case refused && api.ErrorCode != codeAppendUnderWay:
			return 0, fmt.Errorf("append %s to task %s: %w", d.Kind, d.Task, err)
		}
		// The fate of the try is unknown. Sending it again decides it: stored now, or refused and then recognised.
		c.log.Debug("append is repeated", "task_id", d.Task, "entry", d.ID, "error", err)
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("append %s to task %s, fate unknown: %w", d.Kind, d.Task, context.Cause(ctx))
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

// recognise answers whether a refused draft was stored by an earlier try: its entry is then the last on its own
// subject, or stood there before an entry of the same writer. Only one append of a writer is under way per task, so
// the last one decides.
func (c *Client) recognise(ctx context.Context, d tasklog.Draft) (uint64, error) {
	for {
		e, found, err := c.Last(ctx, d.Subject)
		switch {
		case err == nil && found && e.ID == d.ID:
			return e.Seq, nil
		case err == nil:
			return 0, ErrRefused
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("append %s to task %s, fate unknown: %w", d.Kind, d.Task, context.Cause(ctx))
		case <-time.After(retryEvery):
		}
	}
}

// Full reports whether an append failed because there is no room for it.
func Full(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == codeMaximumBytes || api.ErrorCode == codeNoSpace)
}

// A Receipt is a message on its way into a stream.
type Receipt struct{ ack jetstream.PubAckFuture }

// Send puts a message into a stream without waiting; the receipt tells its fate. It blocks while too many are under
// way.
func (c *Client) Send(subj string, data []byte) (Receipt, error) {
	f, err := c.js.PublishAsync(subj, data, jetstream.WithStallWait(c.timeout))
	if err != nil {
		return Receipt{}, fmt.Errorf("publish %s: %w", subj, err)
	}
	return Receipt{f}, nil
}

// Wait returns nil when the message is stored. After any error it may be stored or not: send it again, readers drop
// what they have seen.
func (r Receipt) Wait(ctx context.Context) error {
	select {
	case <-r.ack.Ok():
		return nil
	case err := <-r.ack.Err():
		return fmt.Errorf("publish %s: %w", r.ack.Msg().Subject, err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
