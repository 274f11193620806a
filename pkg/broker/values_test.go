package broker_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
)

func TestValuesAndChanges(t *testing.T) {
	t.Parallel()
	kv, err := natstest.Run(t).Bucket(t.Context(), broker.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, data string) {
		t.Helper()
		if _, err := kv.Put(t.Context(), key, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	put("word.a", "1")
	put("word.b", "")
	put("word.c", "3")
	put("other.a", "4")
	if err := kv.Delete(t.Context(), "word.c"); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for v, err := range broker.Values(t.Context(), kv, "word.*") {
		if err != nil || v.Data == nil || v.Revision == 0 {
			t.Fatalf("%+v, %v", v, err)
		}
		found[v.Key] = string(v.Data)
	}
	if want := map[string]string{"word.a": "1", "word.b": ""}; !maps.Equal(found, want) {
		t.Errorf("Values = %v, want %v", found, want)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	clear(found)
	changed := false
	for v, err := range broker.Changes(ctx, kv, "word.*") {
		if err != nil {
			t.Fatal(err)
		}
		found[v.Key] = string(v.Data)
		switch {
		case v.Key == "word.b" && v.Data == nil: // removed, which is told last
			cancel()
		case v.Key == "word.b" && !changed: // from here on they are changes
			changed = true
			put("word.a", "2")
			put("other.a", "5")
			if err := kv.Delete(t.Context(), "word.b"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found["word.a"] != "2" || !changed || context.Cause(ctx) != context.Canceled || len(found) > 3 {
		t.Errorf("Changes ended with %v (%v)", found, context.Cause(ctx))
	}
}

// held keeps the last watch of a bucket.
type held struct {
	jetstream.KeyValue
	last jetstream.KeyWatcher
}

func (h *held) Watch(ctx context.Context, keys string, opts ...jetstream.WatchOpt) (w jetstream.KeyWatcher, err error) {
	h.last, err = h.KeyValue.Watch(ctx, keys, opts...)
	return h.last, err
}

// The library gives a watch up when a cluster cannot make another consumer for it at once.
func TestChangesOverLostWatch(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	kv, err := c.Bucket(t.Context(), broker.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put := func(key, value string) {
		if _, err := kv.Put(ctx, key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	put("word.a", "0")
	put("word.b", "0")
	var got []string
	h := &held{KeyValue: kv}
	for v, err := range broker.Changes(ctx, h, "word.*") {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, v.Key+"="+string(v.Data)); v.Data == nil {
			break
		}
		switch len(got) {
		case 2, 3:
			if err := h.last.Stop(); err != nil {
				t.Fatal(err)
			}
			put("word.a", itoa(len(got)))
		case 4:
			if err := errors.Join(h.last.Stop(), kv.Delete(ctx, "word.b")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []string{"word.a=0", "word.b=0", "word.a=2", "word.a=3", "word.b="}; !slices.Equal(got, want) {
		t.Errorf("Changes = %v, want %v", got, want)
	}
	c.Close()
	for _, err := range broker.Changes(t.Context(), kv, "word.*") {
		if err == nil {
			t.Fatal("a closed connection brings a change")
		}
	}
}
