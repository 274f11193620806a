package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/subject"
)

// LeaderKey is the key of StateBucket that says which orchestrator leads.
const LeaderKey = "leader"

// A Snapshot describes what Snapshot has written of one stream: all that Restore needs to know beside the bytes.
type Snapshot struct {
	Stream   string          `json:"stream"`
	Config   json.RawMessage `json:"config"` // the stream's own
	State    json.RawMessage `json:"state"`
	Messages uint64          `json:"messages"`
	FirstSeq uint64          `json:"first_seq"`
	LastSeq  uint64          `json:"last_seq"`
	Bytes    int64           `json:"bytes"` // that the messages take in a store
}

// snapshotChunk is how much the server sends at a time: below the smallest message that a broker is set up to take.
// snapshotIdle is how long either side may say nothing; the server itself waits 5 s for word that a chunk has come.
const (
	snapshotChunk = 256 << 10
	snapshotIdle  = 30 * time.Second
)

// Streams names every stream of ours that the broker has, those below buckets and object stores too, in order.
func (c *Client) Streams(ctx context.Context) ([]string, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var names []string
	list := c.js.StreamNames(ctx)
	for name := range list.Name() {
		if ours(name) {
			names = append(names, name)
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

func ours(stream string) bool {
	return slices.ContainsFunc([]string{"CHIFFON_", "KV_chiffon_", "OBJ_chiffon_"}, func(p string) bool { return strings.HasPrefix(stream, p) })
}

// Snapshot writes what a stream holds at one moment, with its consumers, while it is in use. What the bytes mean is the
// server's affair. w must take them as they come: after 5 s without progress the server gives up.
func (c *Client) Snapshot(ctx context.Context, stream string, w io.Writer) (Snapshot, error) {
	fail := func(err error) (Snapshot, error) {
		return Snapshot{}, fmt.Errorf("snapshot of stream %s: %w", stream, err)
	}
	inbox := c.nc.NewRespInbox()
	chunks := make(chan *nats.Msg, 64) // more than the server's window
	sub, err := c.nc.ChanSubscribe(inbox, chunks)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be gone already
	var answer struct {
		Config json.RawMessage `json:"config"`
		State  json.RawMessage `json:"state"`
		Error  *apiError       `json:"error"`
	}
	query := map[string]any{"deliver_subject": inbox, "chunk_size": snapshotChunk}
	if err := c.ask(ctx, "$JS.API.STREAM.SNAPSHOT."+stream, query, &answer); err != nil {
		return fail(err)
	}
	if answer.Error != nil {
		return fail(answer.Error)
	}
	s := Snapshot{Stream: stream, Config: answer.Config, State: answer.State}
	if err := s.count(); err != nil {
		return fail(err)
	}
	idle := time.NewTimer(snapshotIdle)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return fail(context.Cause(ctx))
		case <-idle.C:
			return fail(errors.New("the broker sends nothing more"))
		case m := <-chunks:
			if len(m.Data) == 0 {
				if status := m.Header.Get("Status"); status != "" && status != "204" {
					return fail(fmt.Errorf("the broker gave up: %s %s", status, m.Header.Get("Description")))
				}
				return s, nil
			}
			if _, err := w.Write(m.Data); err != nil {
				return fail(err)
			}
			if m.Reply != "" {
				if err := c.nc.Publish(m.Reply, nil); err != nil {
					return fail(err)
				}
			}
			idle.Reset(snapshotIdle)
		}
	}
}

// count reads the numbers out of what the server says.
func (s *Snapshot) count() error {
	var state struct {
		Messages uint64 `json:"messages"`
		Bytes    int64  `json:"bytes"`
		FirstSeq uint64 `json:"first_seq"`
		LastSeq  uint64 `json:"last_seq"`
	}
	if err := json.Unmarshal(s.State, &state); err != nil {
		return fmt.Errorf("its state: %w", err)
	}
	s.Messages, s.FirstSeq, s.LastSeq, s.Bytes = state.Messages, state.FirstSeq, state.LastSeq, state.Bytes
	return nil
}

// A Fit says how a restored stream is to differ from the one that was saved.
type Fit struct {
	Replicas int   // copies in a cluster; at least 1
	MaxBytes int64 // the most it may hold, if that is less than it was and what it holds has room in it; 0 leaves it
}

// Restore makes a stream out of what Snapshot wrote. The broker must not have it.
func (c *Client) Restore(ctx context.Context, s Snapshot, fit Fit, r io.Reader) error {
	if err := c.restore(ctx, s, fit, r); err != nil {
		return fmt.Errorf("restore stream %s: %w", s.Stream, err)
	}
	return nil
}

func (c *Client) restore(ctx context.Context, s Snapshot, fit Fit, r io.Reader) error {
	var config map[string]any
	if err := json.Unmarshal(s.Config, &config); err != nil {
		return fmt.Errorf("its configuration: %w", err)
	}
	config["num_replicas"] = max(fit.Replicas, 1)
	if was, _ := config["max_bytes"].(float64); fit.MaxBytes > 0 && was > float64(fit.MaxBytes) {
		config["max_bytes"] = max(fit.MaxBytes, s.Bytes/8*10+1<<20)
	}
	var begun struct {
		Deliver string    `json:"deliver_subject"`
		Error   *apiError `json:"error"`
	}
	if err := c.ask(ctx, "$JS.API.STREAM.RESTORE."+s.Stream, map[string]any{"config": config, "state": s.State}, &begun); err != nil {
		return err
	}
	if begun.Error != nil {
		return begun.Error
	}
	chunk := make([]byte, snapshotChunk)
	for {
		n, err := io.ReadFull(r, chunk)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		last := n == 0 // an empty message ends it
		answer, err := c.send(ctx, begun.Deliver, chunk[:n])
		if err != nil {
			return err
		}
		var done struct {
			Error *apiError `json:"error"`
		}
		if len(answer) > 0 {
			if err := json.Unmarshal(answer, &done); err != nil {
				return err
			}
		}
		if done.Error != nil {
			return done.Error
		}
		if last {
			return nil
		}
	}
}

// DeleteStream removes a stream with all it holds.
func (c *Client) DeleteStream(ctx context.Context, name string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	if err := c.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete stream %s: %w", name, err)
	}
	return nil
}

// send is one step of a restore: the broker answers when it has written what it got.
func (c *Client) send(ctx context.Context, subj string, data []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotIdle)
	defer cancel()
	m, err := c.nc.RequestWithContext(ctx, subj, data)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// An apiError is how JetStream's API says no.
type apiError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.Code) }

// ask puts one question to JetStream's API.
func (c *Client) ask(ctx context.Context, subj string, query, answer any) error {
	data, err := json.Marshal(query)
	if err != nil {
		return err
	}
	reply, err := c.send(ctx, subj, data)
	if err != nil {
		return err
	}
	return json.Unmarshal(reply, answer)
}

// LimitOf is the most that the limits let one of our streams hold; 0 when they do not speak of it.
func (l Limits) LimitOf(stream string) int64 {
	return map[string]int64{
		subject.TasksStream: l.Tasks, subject.StatusStream: l.Status, subject.MailStream: l.Mail, subject.AuditStream: l.Audit,
	}[stream]
}
