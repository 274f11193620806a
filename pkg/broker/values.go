package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"
)

// A Value is what a bucket holds under a key.
type Value struct {
	Key      string
	Data     []byte // nil when it was removed
	Revision uint64
}

// Values yields what a bucket holds now under the keys that filter chooses, "*" for all. After an error nothing comes.
func Values(ctx context.Context, kv jetstream.KeyValue, filter string) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		keys, err := kv.ListKeysFiltered(ctx, filter)
		if err != nil {
			yield(Value{}, fmt.Errorf("keys of bucket %s: %w", kv.Bucket(), err))
			return
		}
		defer func() { _ = keys.Stop() }() // all were read as a rule
		for key := range keys.Keys() {
			e, err := kv.Get(ctx, key)
			if errors.Is(err, jetstream.ErrKeyNotFound) {
				continue // removed meanwhile
			}
			if err != nil {
				yield(Value{}, fmt.Errorf("bucket %s, key %s: %w", kv.Bucket(), key, err))
				return
			}
			if !yield(Value{Key: key, Data: e.Value(), Revision: e.Revision()}, nil) {
				return
			}
		}
	}
}

// Changes yields the same, and from then on each change, until ctx ends: that is no error. After an error nothing comes.
func Changes(ctx context.Context, kv jetstream.KeyValue, filter string) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		w, err := kv.Watch(ctx, filter)
		if err != nil {
			if ctx.Err() == nil {
				yield(Value{}, fmt.Errorf("watch bucket %s: %w", kv.Bucket(), err))
			}
			return
		}
		defer func() { _ = w.Stop() }() // ctx has ended it as a rule
		for {
			select {
			case <-ctx.Done():
				return
			case e, ok := <-w.Updates():
				switch {
				case !ok && ctx.Err() == nil:
					yield(Value{}, fmt.Errorf("watch bucket %s: the connection was closed", kv.Bucket()))
					return
				case !ok:
					return
				case e == nil: // the past is over
					continue
				}
				v := Value{Key: e.Key(), Revision: e.Revision()}
				if e.Operation() == jetstream.KeyValuePut {
					v.Data = append([]byte{}, e.Value()...) // not nil, also when it is empty
				}
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}
