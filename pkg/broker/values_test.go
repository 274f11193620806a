package broker_test

import (
	"context"
	"maps"
	"testing"
	"time"

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
