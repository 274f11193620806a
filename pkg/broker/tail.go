package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Tail yields a stream's messages from a sequence on, first what is there, then what comes, until ctx ends (which
// yields nothing more). It survives lost connections without a gap or a repetition. An error means that the stream
// cannot be read any more: it is gone, or Close has ended the connection.
func (c *Client) Tail(ctx context.Context, stream string, from uint64) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		next := max(from, 1)
		for ctx.Err() == nil {
			err := c.follow(ctx, stream, &next, yield)
			switch {
			case err == nil || ctx.Err() != nil:
				return
			case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, nats.ErrConnectionClosed):
				yield(Msg{}, fmt.Errorf("tail %s: %w", stream, err))
				return
			}
			c.log.Debug("stream is read anew", "stream", stream, "from", next, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(retryEvery):
			}
		}
	}
}

// errGap is a message that the consumer has sent and that did not arrive.
var errGap = errors.New("a message is missing")

// follow reads what there is by direct gets, then what comes through a consumer, until that fails; nil when yield has
// had enough. Not an ordered consumer of the library: that one takes an empty message with a Status header for word
// from the server, and asks for it again for ever. Here the next try steps over it by direct get.
func (c *Client) follow(ctx context.Context, stream string, next *uint64, yield func(Msg, error) bool) error {
	if _, err := c.StreamInfo(ctx, stream); err != nil {
		return err
	}
	for m, err := range c.Range(ctx, stream, ">", *next) {
		if err != nil {
			return err
		}
		*next = m.Seq + 1
		if !yield(m, nil) {
			return nil
		}
	}
	cons, err := c.following(ctx, stream, *next)
	if err != nil {
		return err
	}
	it, err := cons.Messages(jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(time.Second), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return err
	}
	defer it.Stop()
	for sent := uint64(1); ; sent++ {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != sent {
			return errGap
		}
		*next = meta.Sequence.Stream + 1
		if !yield(Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data(), Seq: meta.Sequence.Stream, Time: meta.Timestamp}, nil) {
			return nil
		}
	}
}

// following makes a consumer that hands out a stream from a sequence on, to one reader, once. It goes by itself.
func (c *Client) following(ctx context.Context, stream string, from uint64) (jetstream.Consumer, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		AckPolicy:         jetstream.AckNonePolicy,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: time.Minute,
	})
}
