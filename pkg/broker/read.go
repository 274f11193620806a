package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

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

// A LogReply answers an agent that asks for a task's log (verb get of chiffon.api.<agent_id>): a page of its messages,
// or what was wrong with the question. The messages are good for folding and nothing else: those that are void have
// no body, large ones only what the fold needs.
type LogReply struct {
	Messages []Msg            `json:"messages,omitempty"`
	Next     uint64           `json:"next,omitempty"` // the log goes on there: the "from" of the next question; 0 is the end
	Error    *message.Failure `json:"error,omitempty"`
}

// Entry reads the message as an entry of a task log.
func (m Msg) Entry() tasklog.Entry { return tasklog.Read(m.Subject, m.Header, m.Data, m.Seq, m.Time) }

// Task reads the whole log of a task, first entry first; empty when there is none. Void entries come without their
// bodies, but for the first request of a log that has no other. In a cluster nothing is missing that the leader has.
func (c *Client) Task(ctx context.Context, id subject.TaskID) ([]tasklog.Entry, error) {
	var entries []tasklog.Entry
	var r tasklog.Reader
	for m, err := range c.Current(ctx, subject.TasksStream, subject.Task(id), 1) {
		if err != nil {
			return nil, fmt.Errorf("read the log of task %s: %w", id, err)
		}
		e, _ := r.Next(m.Entry())
		entries = append(entries, e)
	}
	return entries, nil
}

// Current is Range for decisions. In a cluster any server answers direct gets, with what it has applied so far: a
// beginning of the truth. Whoever was just refused and reads on would take its own entry for missing. The leader tells
// the rest.
func (c *Client) Current(ctx context.Context, stream, filter string, from uint64) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		next := max(from, 1)
		for m, err := range c.Range(ctx, stream, filter, next) {
			if !yield(m, err) || err != nil {
				return
			}
			next = m.Seq + 1
		}
		for c.nc.ConnectedClusterName() != "" {
			bounded, cancel := c.bounded(ctx)
			m, found, err := c.leaderGet(bounded, stream, map[string]any{"seq": next, "next_by_subj": filter})
			cancel()
			if err == nil && !found || !yield(m, err) || err != nil {
				return
			}
			next = m.Seq + 1
		}
	}
}

// batch and batchBytes are how much one direct get asks for. Without the second the server sends up to its own limit
// of pending bytes, far more than is good to hold here.
const (
	batch      = 512
	batchBytes = 8 << 20
)

// Range yields what a stream holds now on a subject (wildcards allowed), from a sequence on. It ends where the
// stream ended when it was asked last; an error is the last thing it yields. Nothing is missing between two messages
// that it yields. In a cluster the newest may be missing: see Current.
func (c *Client) Range(ctx context.Context, stream, filter string, from uint64) iter.Seq2[Msg, error] {
	return func(yield func(Msg, error) bool) {
		for more := true; more; {
			var msgs []Msg
			var err error
			if msgs, more, err = c.get(ctx, stream, filter, from, batch); err != nil {
				yield(Msg{}, err)
				return
			}
			for _, m := range msgs {
				if !yield(m, nil) {
					return
				}
				from = m.Seq + 1
			}
		}
	}
}

// FirstSince finds the first message at or after a moment on the subjects of a filter; found is false when there is none.
func (c *Client) FirstSince(ctx context.Context, stream, filter string, at time.Time) (seq uint64, found bool, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m, found, err := c.leaderGet(ctx, stream, map[string]any{"start_time": at.UTC().Format(time.RFC3339Nano), "next_by_subj": filter})
	return m.Seq, found, err
}

// get does one batched direct get; more says that there is something behind it.
func (c *Client) get(ctx context.Context, stream, filter string, from uint64, count int) (msgs []Msg, more bool, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	inbox := c.nc.NewRespInbox()
	// Not a synchronous subscription: that takes an empty message with a Status header for word from the server.
	answers := make(chan *nats.Msg, count+1)
	sub, err := c.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be gone already
	from = max(from, 1)
	query, err := json.Marshal(map[string]any{"seq": from, "batch": count, "max_bytes": batchBytes, "next_by_subj": filter})
	if err != nil {
		return nil, false, err
	}
	if err := c.nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, query); err != nil {
		return nil, false, err
	}
	last := uint64(0)
	for {
		var m *nats.Msg
		select {
		case m = <-answers:
		case <-ctx.Done():
			return nil, false, fmt.Errorf("direct get from %s: %w", stream, context.Cause(ctx))
		}
		if len(m.Header) > 0 && number(m, "Nats-Last-Sequence") != last {
			return nil, false, fmt.Errorf("direct get from %s: a message behind %d was lost on the way", stream, last)
		}
		msg, status, err := direct(m)
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("direct get from %s: %w", stream, err)
		case len(m.Header) == 0: // the header that was put there by hand cannot be read; the place stands in it
			if msg, _, err = c.leaderGet(ctx, stream, map[string]any{"seq": max(from, last+1), "next_by_subj": filter}); err != nil {
				return nil, false, err
			}
		case status == "404":
			return nil, false, nil
		case status == "503":
			return nil, false, fmt.Errorf("direct get from %s: %w", stream, nats.ErrNoResponders)
		case status == "204": // end of batch
			return msgs, last > 0 && number(m, "Nats-Num-Pending") > 0, nil
		case status != "":
			return nil, false, fmt.Errorf("direct get from %s: %s %s", stream, status, m.Header.Get("Description"))
		}
		last = msg.Seq
		msgs = append(msgs, msg)
	}
}

// placed are the headers that the server adds to what it stores when it hands it out. It adds them behind those that
// a writer has set himself, whatever their names.
var placed = []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"}

// lastOf is the value of a header that no writer of a message can have set.
func lastOf(m *nats.Msg, name string) string {
	if v := m.Header[name]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func number(m *nats.Msg, name string) uint64 {
	n, _ := strconv.ParseUint(lastOf(m, name), 10, 64) // 0 is what a missing one means
	return n
}

// direct reads an answer to a direct get: a message, or a status of the server. A message may well have a header
// called Status, for its writer chose its headers; but only a message stands in a stream. Not so with Nats-Subject: the
// server's word that nobody answers (503) names the subject that was asked.
func direct(m *nats.Msg) (msg Msg, status string, err error) {
	if lastOf(m, "Nats-Stream") == "" {
		return Msg{}, m.Header.Get("Status"), nil
	}
	seq, err := strconv.ParseUint(lastOf(m, "Nats-Sequence"), 10, 64)
	if err != nil {
		return Msg{}, "", fmt.Errorf("sequence %q", lastOf(m, "Nats-Sequence"))
	}
	at, err := time.Parse(time.RFC3339Nano, lastOf(m, "Nats-Time-Stamp"))
	if err != nil {
		return Msg{}, "", err
	}
	header := maps.Clone(m.Header)
	for _, name := range placed {
		delete(header, name)
	}
	return Msg{Subject: lastOf(m, "Nats-Subject"), Header: header, Data: m.Data, Seq: seq, Time: at}, "", nil
}

// Last reads the last entry on a subject of the task log; found is false when there is none. In a cluster it asks the
// leader: another server may answer with what was true long ago.
func (c *Client) Last(ctx context.Context, subj string) (e tasklog.Entry, found bool, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var msg Msg
	if c.nc.ConnectedClusterName() == "" {
		msg, found, err = c.lastDirect(ctx, subj)
	} else {
		msg, found, err = c.leaderGet(ctx, subject.TasksStream, map[string]any{"last_by_subj": subj})
	}
	if err != nil || !found {
		return e, false, err
	}
	return msg.Entry(), true, nil
}

func (c *Client) lastDirect(ctx context.Context, subj string) (msg Msg, found bool, err error) {
	m, err := c.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+subject.TasksStream+"."+subj, nil)
	if err != nil && !errors.Is(err, nats.ErrNoResponders) {
		return msg, false, fmt.Errorf("last entry on %s: %w", subj, err)
	}
	if err != nil || len(m.Header) == 0 { // nobody there, or a message whose header says so, or one without any
		return c.leaderGet(ctx, subject.TasksStream, map[string]any{"last_by_subj": subj})
	}
	msg, status, err := direct(m)
	switch {
	case err != nil:
		return msg, false, fmt.Errorf("last entry on %s: %w", subj, err)
	case status == "404":
		return msg, false, nil
	case status != "":
		return msg, false, fmt.Errorf("last entry on %s: %s %s", subj, status, m.Header.Get("Description"))
	}
	return msg, true, nil
}

// leaderGet asks the stream's leader for one message; found is false when there is none. Slower than a direct get,
// but it cannot be behind, and it tells the place of a message whose header nobody can read.
func (c *Client) leaderGet(ctx context.Context, stream string, query map[string]any) (msg Msg, found bool, err error) {
	data, err := json.Marshal(query)
	if err != nil {
		return msg, false, err
	}
	m, err := c.askLeader(ctx, "$JS.API.STREAM.MSG.GET."+stream, data)
	if err != nil {
		return msg, false, fmt.Errorf("get from %s: %w", stream, err)
	}
	var r struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
		Error *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &r); {
	case err != nil:
		return msg, false, fmt.Errorf("get from %s: %w", stream, err)
	case r.Error != nil && r.Error.Code == 404:
		return msg, false, nil
	case r.Error != nil:
		return msg, false, fmt.Errorf("get from %s: %w", stream, errors.New(r.Error.Description))
	}
	header, _ := nats.DecodeHeadersMsg(r.Message.Header) // nil when it cannot be read; whoever reads the message says so
	return Msg{Subject: r.Message.Subject, Header: header, Data: r.Message.Data, Seq: r.Message.Seq, Time: r.Message.Time}, true, nil
}

// askLeader asks until there is an answer or ctx ends. While a cluster elects a leader nobody answers, and nobody keeps
// the question: whoever asked once would wait for nothing long after the election.
func (c *Client) askLeader(ctx context.Context, subj string, query []byte) (*nats.Msg, error) {
	for c.nc.ConnectedClusterName() != "" {
		try, cancel := context.WithTimeout(ctx, leaderFor)
		m, err := c.nc.RequestWithContext(try, subj, query)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return m, err
		}
	}
	return c.nc.RequestWithContext(ctx, subj, query)
}
