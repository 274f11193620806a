package broker

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/cut"
)

// A bucket is a key-value store; its writes are side effects between which a program may crash.
type bucket struct{ jetstream.KeyValue }

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
