package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A Msg is one stored message.
type Msg struct {
	Subject string              `json:"subject"`
	Header  map[string][]string `json:"header"`
	Data    []byte              `json:"data"`
	Seq     uint64              `json:"seq"`
	Time    time.Time           `json:"time"`
}

// A LogReply answers an agent that asks for a task's log (verb get of chiffon.api.<agent_id>): the messages of the
// log, or what was wrong with the question.
type LogReply struct {
	Messages []Msg            `json:"messages,omitempty"`
	Error    *message.Failure `json:"error,omitempty"`
}

// Entry reads the message as an entry of a task log.
func (m Msg) Entry() tasklog.Entry { return tasklog.Read(m.Subject, m.Header, m.Data, m.Seq, m.Time) }

// Task reads the whole log of a task, first entry first; empty when there is none.
func (c *Client) Task(ctx context.Context, id subject.TaskID) ([]tasklog.Entry, error) {
	var entries []tasklog.Entry
	for m, err := range c.Range(ctx, subject.TasksStream, subject.Task(id), 1) {
		if err != nil {
			return nil, fmt.Errorf("read the log of task %s: %w", id, err)
		}
		entries = append(entries, m.Entry())
	}
	return entries, nil
}

// batch is how many messages one direct get asks for.
const batch = 512

// Range yields what a stream holds now on a subject (wildcards allowed), from a sequence on. It ends where the
// stream ended when it was asked last; an error is the last thing it yields.
func (c *Client) Range(ctx context.Context, stream, filter string, from uint64) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		for {
			next, more, err := c.get(ctx, stream, filter, from, yield)
			if err != nil {
				yield(Msg{}, err)
				return
			}
			if !more {
				return
			}
			from = next
		}
	}
}

// get does one batched direct get. more is false when there is nothing behind it or yield has had enough.
func (c *Client) get(ctx context.Context, stream, filter string, from uint64, yield func(Msg, error) bool) (next uint64, more bool, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	inbox := c.nc.NewRespInbox()
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be gone already
	query, err := json.Marshal(map[string]any{"seq": max(from, 1), "batch": batch, "next_by_subj": filter})
	if err != nil {
		return 0, false, err
	}
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, query); err != nil {
		return 0, false, err
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return 0, false, fmt.Errorf("direct get from %s: %w", stream, err)
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			msg, err := direct(m)
			if err != nil {
				return 0, false, err
			}
			next = msg.Seq + 1
			if !yield(msg, nil) {
				return 0, false, nil
			}
		case "404":
			return 0, false, nil
		case "204": // end of batch
			pending, _ := strconv.ParseUint(m.Header.Get("Nats-Num-Pending"), 10, 64)
			return next, pending > 0 && next > 0, nil
		default:
			return 0, false, fmt.Errorf("direct get from %s: %s %s", stream, status, m.Header.Get("Description"))
		}
	}
}

// direct reads the answer to a direct get.
func direct(m *nats.Msg) (Msg, error) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return Msg{}, fmt.Errorf("direct get: sequence %q", m.Header.Get("Nats-Sequence"))
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return Msg{}, fmt.Errorf("direct get: %w", err)
	}
	return Msg{Subject: m.Header.Get("Nats-Subject"), Header: m.Header, Data: m.Data, Seq: seq, Time: at}, nil
}

// Last reads the last entry on a subject of the task log; found is false when there is none.
func (c *Client) Last(ctx context.Context, subj string) (e tasklog.Entry, found bool, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m, err := c.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+subject.TasksStream+"."+subj, nil)
	if err != nil {
		return e, false, fmt.Errorf("last entry on %s: %w", subj, err)
	}
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		return e, false, nil
	default:
		return e, false, fmt.Errorf("last entry on %s: %s %s", subj, status, m.Header.Get("Description"))
	}
	msg, err := direct(m)
	if err != nil {
		return e, false, err
	}
	return msg.Entry(), true, nil
}

// Tail yields a stream's messages from a sequence on, first what is there, then what comes, until ctx ends (which
// yields nothing more). It survives lost connections without a gap or a repetition. An error means that the stream
// cannot be read any more.
func (c *Client) Tail(ctx context.Context, stream string, from uint64) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		next := max(from, 1)
		for ctx.Err() == nil {
			err := c.tail(ctx, stream, &next, yield)
			switch {
			case err == nil || ctx.Err() != nil:
				return
			case errors.Is(err, jetstream.ErrStreamNotFound):
				yield(Msg{}, fmt.Errorf("tail %s: %w", stream, err))
				return
			}
			c.log.Warn("stream is read anew", "stream", stream, "from", next, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(retryEvery):
			}
		}
	}
}

// tail reads through one ordered consumer until it fails; nil when yield has had enough.
func (c *Client) tail(ctx context.Context, stream string, next *uint64, yield func(Msg, error) bool) error {
	cons, err := c.js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   *next,
	})
	if err != nil {
		return err
	}
	it, err := cons.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream < *next {
			continue
		}
		*next = meta.Sequence.Stream + 1
		if !yield(Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data(), Seq: meta.Sequence.Stream, Time: meta.Timestamp}, nil) {
			return nil
		}
	}
}
