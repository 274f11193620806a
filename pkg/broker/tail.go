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
// yields nothing more). It survives lost connections and servers without a gap or a repetition, and does not rest
// while the stream's leader has more than it has yielded. An error means that the stream cannot be read any more: it
// is gone, or Close has ended the connection.
func (c *Client) Tail(ctx context.Context, stream string, from uint64) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		next := max(from, 1)
		for ctx.Err() == nil {
			err := c.follow(ctx, stream, &next, yield)
			switch {
			case err == nil || ctx.Err() != nil:
				return
			case Lost(err):
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

// Lost reports whether what was read is gone for good.
func Lost(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrStreamNotFound) || errors.Is(err, nats.ErrConnectionClosed)
}

var (
	// errGap is a message that the consumer has sent and that did not arrive.
	errGap = errors.New("a message is missing")

	// errStuck is a consumer that lives and sends nothing, though the leader has had more for a while: the server that
	// keeps it is behind.
	errStuck = errors.New("the consumer is behind the stream's leader")
)

const (
	// beat is how often an idle consumer says that it lives. Two that are missing are its death.
	beat = 750 * time.Millisecond

	// quiet, longer than two beats, is how long a consumer may send nothing before the leader is asked whether there is
	// more, and how long it then has to send that.
	quiet = 2 * time.Second

	// leaderFor bounds one question to the leader. It answers at once or, while there is none, not at all.
	leaderFor = time.Second
)

// follow reads what there is, then what comes through a consumer, until that fails; nil when yield has had enough. Not
// an ordered consumer of the library: that one takes an empty message with a Status header for word from the server,
// and asks for it again for ever. Here the next try steps over it by direct get.
func (c *Client) follow(ctx context.Context, stream string, next *uint64, yield func(Msg, error) bool) error {
	if _, err := c.lastSeq(ctx, stream); err != nil {
		return err
	}
	for m, err := range c.Current(ctx, stream, ">", *next) {
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
	it, err := cons.Messages(jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(beat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return err
	}
	defer it.Stop()
	owed := uint64(0) // the leader had this one when it was asked last
	for sent := uint64(1); ; {
		m, err := nextWithin(ctx, it, quiet)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if owed >= *next {
				return errStuck
			}
			if owed, err = c.owes(ctx, stream, *next); Lost(err) {
				return err
			}
			continue // a leader that cannot be asked is no fault of this consumer
		}
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != sent || meta.Sequence.Stream < *next {
			return errGap
		}
		sent++
		*next = meta.Sequence.Stream + 1
		if !yield(Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data(), Seq: meta.Sequence.Stream, Time: meta.Timestamp}, nil) {
			return nil
		}
	}
}

func nextWithin(ctx context.Context, it jetstream.MessagesContext, limit time.Duration) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return it.Next(jetstream.NextContext(ctx))
}

// owes is the last message that the leader has from a sequence on; 0 when there is none.
func (c *Client) owes(ctx context.Context, stream string, from uint64) (uint64, error) {
	last, err := c.lastSeq(ctx, stream)
	if err != nil || last < from {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, leaderFor)
	defer cancel()
	end, err := c.End(ctx, stream, ">") // the last one may have been removed
	if err != nil || end < from {
		return 0, err
	}
	return end, nil
}

func (c *Client) lastSeq(ctx context.Context, stream string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, min(leaderFor, c.timeout))
	defer cancel()
	info, err := c.StreamInfo(ctx, stream)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

// following makes a consumer that hands out a stream from a sequence on, to one reader, once. It goes by itself.
func (c *Client) following(ctx context.Context, stream string, from uint64) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, min(2*leaderFor, c.timeout))
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
