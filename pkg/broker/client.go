package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/cut"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// Config says how to reach the broker.
type Config struct {
	// URL of a NATS server or, separated by commas, of several. Not used with Embedded.
	URL string

	// Embedded is a server in this process; the connection then needs no socket.
	Embedded *Server

	// Name is what the server calls this connection.
	Name string

	// Timeout bounds one request to the broker. Default 5 s.
	Timeout time.Duration

	// Log gets lost and regained connections. Default: nowhere.
	Log *slog.Logger
}

// A Client is one connection to the broker. Safe for concurrent use. Close ends it.
type Client struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	timeout time.Duration
	log     *slog.Logger
}

// Connect reaches the broker, or says why not. From then on the connection comes back by itself for ever.
func Connect(cfg Config) (*Client, error) {
	c := &Client{timeout: cfg.Timeout, log: cfg.Log}
	if c.timeout <= 0 {
		c.timeout = 5 * time.Second
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(c.timeout),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				c.log.Warn("broker connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { c.log.Info("broker connection is back") }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			attrs := []any{"error", err}
			if sub != nil {
				attrs = append(attrs, "subject", sub.Subject)
			}
			c.log.Warn("broker complains", attrs...)
		}),
	}
	if cfg.Embedded != nil {
		opts = append(opts, nats.InProcessServer(cfg.Embedded))
	}
	var err error
	if c.nc, err = nats.Connect(cfg.URL, opts...); err != nil {
		return nil, fmt.Errorf("connect to the broker at %s: %w (is it running? NATS_URL says where it is)", cfg.URL, err)
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(c.timeout),
		jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithPublishAsyncTimeout(4*c.timeout)); err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	return c, nil
}

// Close ends the connection after what was published has been sent.
func (c *Client) Close() {
	_ = c.nc.FlushTimeout(time.Second) // a lost connection has nothing to flush
	c.nc.Close()
}

// Connected reports whether the broker can be reached now.
func (c *Client) Connected() bool { return c.nc.IsConnected() }

// ServerVersion is that of the broker it is connected to.
func (c *Client) ServerVersion() string { return c.nc.ConnectedServerVersion() }

// MaxPayload is the largest message that the broker takes, in bytes.
func (c *Client) MaxPayload() int64 { return c.nc.MaxPayload() }

// bounded gives ctx the client's own time limit if it has none that is shorter.
func (c *Client) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

// Request asks and waits for one answer, at most Timeout long.
func (c *Client) Request(ctx context.Context, subj string, data []byte) ([]byte, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	cut.Before("request", subj)
	m, err := c.nc.RequestWithContext(ctx, subj, data)
	cut.After("request", subj)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", subj, err)
	}
	return m.Data, nil
}

// NobodyAnswers reports whether a Request failed because no orchestrator listens.
func NobodyAnswers(err error) bool { return errors.Is(err, nats.ErrNoResponders) }

// Publish sends a message that nobody keeps.
func (c *Client) Publish(subj string, data []byte) error {
	cut.Before("publish", subj)
	defer cut.After("publish", subj)
	if err := c.nc.Publish(subj, data); err != nil {
		return fmt.Errorf("publish %s: %w", subj, err)
	}
	return nil
}

// Serve answers requests on a subject until ctx ends; what handle returns is sent back, nil is not. Calls come one
// at a time. Where the answer cannot be sent, whoever asks is told that: {"error": …} with a fault.
func (c *Client) Serve(ctx context.Context, subj string, handle func(ctx context.Context, subj string, data []byte) []byte) error {
	msgs := make(chan *nats.Msg, 4096)
	sub, err := c.nc.ChanSubscribe(subj, msgs)
	if err != nil {
		return fmt.Errorf("subscribe %s: %w", subj, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection may be gone already
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-msgs:
			answer := handle(ctx, m.Subject, m.Data)
			if answer == nil || m.Reply == "" {
				continue
			}
			cut.Before("answer", m.Subject)
			if err := m.Respond(answer); err != nil {
				c.log.Warn("answer not sent", "subject", m.Subject, "bytes", len(answer), "error", err)
				c.excuse(m, len(answer), err)
			}
		}
	}
}

// excuse answers with the fault that there is no answer, so that nobody waits for one.
func (c *Client) excuse(m *nats.Msg, size int, cause error) {
	flt := fault.New(fault.ResourceLimitExceeded, "the answer of %d bytes cannot be sent: %v", size, cause).
		With("limit_name", "max_payload").With("available", int(c.MaxPayload())).With("required", size)
	answer, err := json.Marshal(map[string]message.Failure{"error": message.FailureOf(flt)})
	if err == nil {
		err = m.Respond(answer)
	}
	if err != nil {
		c.log.Warn("answer not sent", "subject", m.Subject, "error", err)
	}
}

// Consumer finds a durable of the task log. ErrNoConsumer when there is none (yet).
func (c *Client) Consumer(ctx context.Context, name string) (jetstream.Consumer, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	cons, err := c.js.Consumer(ctx, subject.TasksStream, name)
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", name, err)
	}
	return cons, nil
}

// ConsumerState tells how far a durable of the task log is: everything up to delivered was handed out, everything up
// to acked is done with. Zeros when there is no such consumer.
func (c *Client) ConsumerState(ctx context.Context, name string) (delivered, acked uint64, err error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	cons, err := c.js.Consumer(ctx, subject.TasksStream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("consumer %s: %w", name, err)
	}
	info := cons.CachedInfo()
	return info.Delivered.Stream, info.AckFloor.Stream, nil
}

// Bucket opens a key-value store that Ensure has made.
func (c *Client) Bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	kv, err := c.js.KeyValue(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	return bucket{kv, c}, nil
}

// StreamInfo describes a stream as it is.
func (c *Client) StreamInfo(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	return s.CachedInfo(), nil
}

// PurgeTask removes a task from a stream, whole or, where upTo is not 0, up to and with a sequence.
func (c *Client) PurgeTask(ctx context.Context, stream string, id subject.TaskID, upTo uint64) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject.Task(id))}
	if upTo > 0 {
		opts = append(opts, jetstream.WithPurgeSequence(upTo+1))
	}
	cut.Before("purge", stream)
	defer cut.After("purge", stream)
	if err := s.Purge(ctx, opts...); err != nil {
		return fmt.Errorf("purge task %s: %w", id, err)
	}
	return nil
}

// Audit stores one record of what was done, or refused, of a kind: {"time": …, "who": …, "what": …}. It returns when
// that is stored.
func (c *Client) Audit(ctx context.Context, kind string, record any) error {
	return c.AuditOnce(ctx, kind, "", record)
}

// AuditOnce is Audit of a record that has an id: stored again within two minutes with the same one, it is there once.
func (c *Client) AuditOnce(ctx context.Context, kind, id string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("audit %s: %w", kind, err)
	}
	m := &nats.Msg{Subject: subject.Audit(kind), Data: data}
	if id != "" {
		m.Header = nats.Header{nats.MsgIdHdr: {id}}
	}
	if _, err := c.store(ctx, m); err != nil {
		return fmt.Errorf("audit %s: %w", kind, err)
	}
	return nil
}

// PauseType has the consumers that all agents of a type share hand out nothing until a moment; they go on by
// themselves then. A zero time lets them go on at once. Those that do not exist need no pause.
func (c *Client) PauseType(ctx context.Context, t subject.AgentType, until time.Time) error {
	for _, p := range subject.Priorities {
		if err := c.pause(ctx, subject.TypeConsumer(t, p), until); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) pause(ctx context.Context, name string, until time.Time) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	var err error
	if until.IsZero() {
		_, err = c.js.ResumeConsumer(ctx, subject.TasksStream, name)
	} else {
		_, err = c.js.PauseConsumer(ctx, subject.TasksStream, name, until)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("pause consumer %s: %w", name, err)
	}
	return nil
}
