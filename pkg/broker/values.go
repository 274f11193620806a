package broker

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

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

// Changes yields the same, and from then on each change, until ctx ends: that is no error. A watch that the library has
// given up, as it does when a cluster has no leader for it, is taken up where it stood. An error says that there is no
// such bucket, or that the connection was closed; after it nothing comes.
func Changes(ctx context.Context, kv jetstream.KeyValue, filter string) iter.Seq2[Value, error] {
	return func(yield func(Value, error) bool) {
		for next := uint64(0); ; {
			more, err := changes(ctx, kv, filter, &next, yield)
			if !more || ctx.Err() != nil {
				return
			}
			if Lost(err) || errors.Is(err, jetstream.ErrBucketNotFound) {
				yield(Value{}, fmt.Errorf("watch bucket %s: %w", kv.Bucket(), err))
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryEvery):
			}
		}
	}
}

// changes is one watch, from a revision on. It returns more=false when yield has had enough.
func changes(ctx context.Context, kv jetstream.KeyValue, filter string, next *uint64, yield func(Value, error) bool) (more bool, err error) {
	var opts []jetstream.WatchOpt
	if *next > 0 {
		opts = append(opts, jetstream.ResumeFromRevision(*next))
	}
	w, err := kv.Watch(ctx, filter, opts...)
	if err != nil {
		return true, err
	}
	defer func() { _ = w.Stop() }() // ctx has ended it as a rule
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return true, nil
			case e == nil, e.Revision() < *next: // the past is over; or it comes again
				continue
			}
			v := Value{Key: e.Key(), Revision: e.Revision()}
			if e.Operation() == jetstream.KeyValuePut {
				v.Data = append([]byte{}, e.Value()...) // not nil, also when it is empty
			}
			*next = e.Revision() + 1
			if !yield(v, nil) {
				return false, nil
			}
		}
	}
}
