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

// Ensure makes every stream and bucket that is missing and brings the others up to date; a stream's MaxBytes is
// never made smaller. Calling it again changes nothing. Safe to call from several orchestrators at once.
//
// A broker sets aside what a stream may hold: where that is more than it has, all streams that are missing are made
// smaller, half by half.
func (c *Client) Ensure(ctx context.Context, l Limits, replicas int) error {
	made := map[string]bool{}
	for {
		err := c.ensureStreams(ctx, Streams(l, max(replicas, 1)), made)
		if err == nil {
			break
		}
		if !Full(err) || l.Tasks/2 < leastBytes {
			return err
		}
		l = Limits{Tasks: l.Tasks / 2, Status: l.Status / 2, Mail: l.Mail / 2, Audit: l.Audit / 2}
		c.log.Warn("broker has little room: the streams are made smaller", "tasks_max_bytes", l.Tasks)
	}
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
	return nil
}

// leastBytes is the smallest a task log is made on a broker that has no room for more.
const leastBytes = 64 << 20

// ensureStreams makes or updates streams. made are those that this call of Ensure has made: they may become smaller.
func (c *Client) ensureStreams(ctx context.Context, all []jetstream.StreamConfig, made map[string]bool) error {
	for _, cfg := range all {
		old, err := c.js.Stream(ctx, cfg.Name)
		if err == nil && !made[cfg.Name] {
			if was := old.CachedInfo().Config.MaxBytes; was > cfg.MaxBytes || was <= 0 { // 0 and -1: no limit
				cfg.MaxBytes = was
			}
		}
		missing := errors.Is(err, jetstream.ErrStreamNotFound)
		cut.Before("make", cfg.Name)
		if _, err := c.js.CreateOrUpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("stream %s: %w", cfg.Name, err)
		}
		made[cfg.Name] = made[cfg.Name] || missing
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
