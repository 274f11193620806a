package broker

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/cut"
)

// A bucket is a key-value store; its writes are side effects between which a program may crash.
//
// Get asks the stream's leader where there is a cluster. The library would ask any server, also one that shows what was
// true long ago: whoever decides by that and writes on the condition of what it has read is refused again and again, and
// a leader takes its own older word for the newest and steps down.
type bucket struct {
	jetstream.KeyValue
	client *Client
}

func (b bucket) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if b.client.nc.ConnectedClusterName() == "" {
		return b.KeyValue.Get(ctx, key)
	}
	ctx, cancel := b.client.bounded(ctx)
	defer cancel()
	m, found, err := b.client.leaderGet(ctx, "KV_"+b.Bucket(), map[string]any{"last_by_subj": "$KV." + b.Bucket() + "." + key})
	switch {
	case err != nil:
		return nil, err
	case !found, removes(m.Header):
		return nil, jetstream.ErrKeyNotFound
	}
	return entry{bucket: b.Bucket(), key: key, msg: m}, nil
}

// removes reports whether a message of a bucket says that there is no value any more.
func removes(header nats.Header) bool {
	return header.Get("KV-Operation") != "" || header.Get(jetstream.MarkerReasonHeader) != ""
}

// An entry is a value as the leader has it.
type entry struct {
	bucket, key string
	msg         Msg
}

func (e entry) Bucket() string                  { return e.bucket }
func (e entry) Key() string                     { return e.key }
func (e entry) Value() []byte                   { return e.msg.Data }
func (e entry) Revision() uint64                { return e.msg.Seq }
func (e entry) Created() time.Time              { return e.msg.Time }
func (e entry) Delta() uint64                   { return 0 }
func (e entry) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

func (b bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	cut.Before("put", key)
	defer cut.After("put", key)
	return b.KeyValue.Put(ctx, key, value)
}

func (b bucket) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	cut.Before("put", key)
	defer cut.After("put", key)
	return b.KeyValue.Create(ctx, key, value, opts...)
}

func (b bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	cut.Before("put", key)
	defer cut.After("put", key)
	return b.KeyValue.Update(ctx, key, value, revision)
}
