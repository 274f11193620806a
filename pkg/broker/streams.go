// Package broker is the way to NATS JetStream: what is made there, the embedded server, and the few verbs that both
// programs use. It knows how entries are stored and read, not what they mean to a program.
package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/cut"
	"chiffon/pkg/subject"
)

// Bucket names of the key-value stores.
const (
	AgentsBucket = "chiffon_agents"
	AccessBucket = "chiffon_access"
	StateBucket  = "chiffon_state"
)

// AckWait is how long a delivered request may stand without an acknowledgement: only until its started entry is
// stored. From there the task log speaks for the attempt.
const AckWait = 30 * time.Second

// Limits says how much each stream may hold, in bytes.
type Limits struct {
	Tasks, Status, Mail, Audit int64
}

// DefaultLimits are those of a store with room enough.
var DefaultLimits = Limits{Tasks: 8 << 30, Status: 4 << 30, Mail: 256 << 20, Audit: 512 << 20}

// LimitsFor shrinks the default limits evenly so that together they take at most nine tenths of a store.
func LimitsFor(capacity int64) Limits {
	l := DefaultLimits
	total := l.Tasks + l.Status + l.Mail + l.Audit
	room := capacity / 10 * 9
	if room >= total {
		return l
	}
	part := func(n int64) int64 { return max(1<<20, int64(float64(n)*float64(room)/float64(total))) }
	return Limits{Tasks: part(l.Tasks), Status: part(l.Status), Mail: part(l.Mail), Audit: part(l.Audit)}
}

// Streams is every stream as data.
func Streams(l Limits, replicas int) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{{
		Name:               subject.TasksStream,
		Description:        "The task log: queue and history in one",
		Subjects:           []string{subject.AllRequests, subject.AllEvents},
		MaxBytes:           l.Tasks,
		Discard:            jetstream.DiscardNew, // an end must never push out a beginning
		MaxConsumers:       100_000,
		AllowDirect:        true,
		AllowAtomicPublish: true,
		Replicas:           replicas,
	}, {
		Name:        subject.StatusStream,
		Description: "work_status: progress and output",
		Subjects:    []string{subject.AllStatuses},
		MaxAge:      7 * 24 * time.Hour,
		MaxBytes:    l.Status,
		Discard:     jetstream.DiscardOld,
		Compression: jetstream.S2Compression,
		AllowDirect: true,
		Replicas:    replicas,
	}, {
		Name:        subject.MailStream,
		Description: "Messages between agents",
		Subjects:    []string{subject.AllMail},
		MaxAge:      7 * 24 * time.Hour,
		MaxBytes:    l.Mail,
		Discard:     jetstream.DiscardOld,
		AllowDirect: true,
		Replicas:    replicas,
	}, {
		Name:        subject.AuditStream,
		Description: "Logins, refusals, agents' requests, what operators did",
		Subjects:    []string{subject.AllAudit},
		MaxBytes:    l.Audit,
		Discard:     jetstream.DiscardNew,
		DenyDelete:  true,
		DenyPurge:   true,
		AllowDirect: true,
		Replicas:    replicas,
	}}
}

// Buckets is every key-value store as data.
func Buckets(replicas int) []jetstream.KeyValueConfig {
	var all []jetstream.KeyValueConfig
	for _, b := range [][2]string{
		{AgentsBucket, "Registered agents and what they offer"},
		{AccessBucket, "Who may do what"},
		{StateBucket, "Policy, breakers, the leader"},
	} {
		all = append(all, jetstream.KeyValueConfig{
			Bucket: b[0], Description: b[1], History: 1, Replicas: replicas, LimitMarkerTTL: time.Minute,
		})
	}
	return all
}

// Ensure makes every stream and bucket that is missing and brings the others up to date. A stream that holds something,
// or ever did, is never made smaller. Calling it again changes nothing. Safe to call from several orchestrators at once:
// one after the other makes the streams.
//
// A broker sets aside what a stream may hold: where that is more than it has, all streams that are empty are made
// smaller, half by half.
func (c *Client) Ensure(ctx context.Context, l Limits, replicas int) error {
	for _, cfg := range Buckets(max(replicas, 1)) {
		if _, err := c.js.KeyValue(ctx, cfg.Bucket); err == nil {
			continue
		} else if !errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("bucket %s: %w", cfg.Bucket, err)
		}
		cut.Before("make", cfg.Bucket)
		if _, err := c.js.CreateOrUpdateKeyValue(ctx, cfg); err != nil {
			return fmt.Errorf("bucket %s: %w", cfg.Bucket, err)
		}
	}
	done, err := c.alone(ctx)
	if err != nil {
		return err
	}
	defer done()
	return c.ensureStreams(ctx, l, max(replicas, 1))
}

// MakingKey is the key of StateBucket that whoever makes the streams holds.
const MakingKey = "making"

// How long that is held by who dies over it, and how often others look.
const (
	makingTime = 5 * time.Second
	makingLook = 50 * time.Millisecond
)

// alone waits until nobody else makes the streams, and keeps others from it until done is called. Two at once could
// have the broker set aside more than it has, and then it refuses every change.
func (c *Client) alone(ctx context.Context) (done func(), err error) {
	kv, err := c.js.KeyValue(ctx, StateBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", StateBucket, err)
	}
	for {
		mine, err := kv.Create(ctx, MakingKey, nil, jetstream.KeyTTL(makingTime))
		switch {
		case err == nil:
			return func() {
				_ = kv.Delete(ctx, MakingKey, jetstream.LastRevision(mine)) // else it goes by itself
			}, nil
		case !errors.Is(err, jetstream.ErrKeyExists):
			return nil, fmt.Errorf("bucket %s, key %s: %w", StateBucket, MakingKey, err)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(makingLook):
		}
	}
}

// leastBytes is the smallest a task log is made on a broker that has no room for more.
const leastBytes = 64 << 20

// ensureStreams makes or updates the streams, as large as there is room for.
func (c *Client) ensureStreams(ctx context.Context, l Limits, replicas int) error {
	for halved := 0; ; halved++ {
		err := c.putStreams(ctx, Streams(l, replicas), halved)
		if err == nil || !Full(err) || l.Tasks/2 < leastBytes {
			return err
		}
		l = Limits{Tasks: l.Tasks / 2, Status: l.Status / 2, Mail: l.Mail / 2, Audit: l.Audit / 2}
		c.log.Warn("broker has little room: the streams are made smaller", "tasks_max_bytes", l.Tasks)
	}
}

// putStreams makes or updates streams. Those that are empty become smaller where all had to be halved.
func (c *Client) putStreams(ctx context.Context, all []jetstream.StreamConfig, halved int) error {
	for _, cfg := range all {
		old, err := c.js.Stream(ctx, cfg.Name)
		if err == nil && (halved == 0 || old.CachedInfo().State.LastSeq > 0) {
			if was := old.CachedInfo().Config.MaxBytes; was > cfg.MaxBytes || was <= 0 { // 0 and -1: no limit
				cfg.MaxBytes = was
			}
		}
		cut.Before("make", cfg.Name)
		if _, err := c.js.CreateOrUpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("stream %s: %w", cfg.Name, err)
		}
	}
	return nil
}

func consumer(name, filter string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       name,
		FilterSubject: filter,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       AckWait,
		MaxAckPending: 100_000,
		MaxDeliver:    -1, // a limit strands messages
	}
}

// TypeConsumers makes the four durables that the agents of a type share, and names them, first served first.
func (c *Client) TypeConsumers(ctx context.Context, t subject.AgentType) ([]string, error) {
	return c.consumers(ctx, func(p subject.Priority) jetstream.ConsumerConfig {
		return consumer(subject.TypeConsumer(t, p), subject.ForType(t, p))
	})
}

// AgentConsumers makes the four durables of one agent, and names them, first served first.
func (c *Client) AgentConsumers(ctx context.Context, id subject.AgentID) ([]string, error) {
	return c.consumers(ctx, func(p subject.Priority) jetstream.ConsumerConfig {
		return consumer(subject.AgentConsumer(id, p), subject.ForAgent(id, p))
	})
}

func (c *Client) consumers(ctx context.Context, of func(subject.Priority) jetstream.ConsumerConfig) ([]string, error) {
	var names []string
	for _, p := range subject.Priorities {
		cfg := of(p)
		cut.Before("make", cfg.Durable)
		if _, err := c.js.CreateOrUpdateConsumer(ctx, subject.TasksStream, cfg); err != nil {
			return nil, fmt.Errorf("consumer %s: %w", cfg.Durable, err)
		}
		names = append(names, cfg.Durable)
	}
	return names, nil
}
