package dispatch

import (
	"testing"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
)

// A leader of an older or a newer version is followed while it speaks, and replaced when it does not.
func TestLeaderOfAnotherVersion(t *testing.T) {
	t.Parallel()
	client := natstest.Run(t)
	kv, err := client.Bucket(t.Context(), broker.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	for name, said := range map[string]string{
		"before there were versions": "host/8d4cbb3a", "this one": `{"v": 1, "name": "another"}`, "a newer one": `{"v": 9, "who": {"a": 1}}`,
	} {
		now := time.Now()
		c := candidate{kv: kv, name: "me", quiet: time.Hour, changed: now, log: natstest.Log(t)}
		for i := range 3 {
			if _, err := kv.PutString(t.Context(), leaderKey, said); err != nil {
				t.Fatal(err)
			}
			if c.try(t.Context(), now.Add(time.Duration(i)*time.Hour)) {
				t.Errorf("%s: it leads beside it", name)
			}
			if known := !c.heard.IsZero(); known != (i > 0) {
				t.Errorf("%s: after %d words it is known to lead: %v", name, i+1, known)
			}
		}
		if !c.try(t.Context(), now.Add(3*time.Hour)) {
			t.Errorf("%s: it is not replaced", name)
		}
		if e, err := kv.Get(t.Context(), leaderKey); err != nil || readWord(e.Value()).Name != "me" || readWord(e.Value()).V != wordVersion {
			t.Errorf("%s: the leader's word is %s, %v", name, e.Value(), err)
		}
		c.letGo()
		if _, err := kv.Get(t.Context(), leaderKey); err == nil {
			t.Errorf("%s: it did not let go", name)
		}
	}
}

// Whoever leads or follows knows that somebody leads, until nobody does any more.
func TestLeaderKnown(t *testing.T) {
	t.Parallel()
	client := natstest.Run(t)
	cfg := brisk
	cfg.LeaderQuiet = 5 * time.Second // a busy machine does not change who leads
	first := join(t, client, cfg)
	first.leads()
	cfg.Name = "two"
	second := join(t, client, cfg)
	knows := func(s *site, want bool) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(patience); s.d.LeaderKnown(time.Now()) != want; <-tick.C {
			if time.Now().After(end) {
				t.Fatalf("LeaderKnown is %v, want %v", !want, want)
			}
		}
	}
	knows(first, true)
	knows(second, true)
	if second.d.Leading() || !first.d.Leading() {
		t.Error("the wrong one leads")
	}
	if second.d.LeaderKnown(time.Now().Add(cfg.LeaderQuiet)) {
		t.Error("a leader that was not heard for so long is still known")
	}
	second.stop()
	first.stop()
	knows(first, false)
}
