package server_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/server"
	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

// A broker of somebody else's that lost what it held is refused, and stays as it was found, until the loss is accepted.
func TestRemoteThatHasLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(s *site)
		says   []string
	}{
		"it is empty": {func(s *site) { s.serve(s.TempDir()) }, []string{"stream CHIFFON_AUDIT is missing", "more like it"}},
		"a stream is gone": {func(s *site) {
			if err := s.js().DeleteStream(s.Context(), subject.TasksStream); err != nil {
				s.Fatal(err)
			}
		}, []string{"stream CHIFFON_TASKS is missing"}},
		"a bucket is gone": {func(s *site) {
			if err := s.js().DeleteKeyValue(s.Context(), broker.StateBucket); err != nil {
				s.Fatal(err)
			}
		}, []string{"stream KV_chiffon_state is missing"}},
		"a stream was made anew": {func(s *site) {
			js := s.js()
			old, err := js.Stream(s.Context(), subject.AuditStream)
			if err == nil {
				cfg := old.CachedInfo().Config
				err = js.DeleteStream(s.Context(), subject.AuditStream)
				if err == nil {
					_, err = js.CreateStream(s.Context(), cfg)
				}
			}
			if err != nil {
				s.Fatal(err)
			}
		}, []string{"stream CHIFFON_AUDIT is another one, made on 2"}},
		"another orchestrator made everything anew": {func(s *site) {
			s.serve(s.TempDir())
			other := here(s.T)
			other.NATSURL = s.cfg.NATSURL
			if o, err := server.Open(s.Context(), other, natstest.Log(s)); err != nil {
				s.Fatal(err)
			} else {
				o.Close()
			}
		}, []string{"stream CHIFFON_AUDIT is another one", "more like it"}},
		"a stream ends earlier": {func(s *site) {
			rewrite(s, `"last_seq": 0`, `"last_seq": 77`)
		}, []string{"ends with message", "it had 77"}},
		"NATS_URL names another broker": {func(s *site) {
			other, _ := natstest.Start(s, broker.ServerConfig{Dir: s.TempDir(), Listen: "127.0.0.1:0", Relaxed: true})
			s.cfg.NATSURL = other.URL()
		}, []string{"the record is of the broker at nats://127.0.0.1:", "is another one"}},
		"a record of a newer program":  {func(s *site) { rewrite(s, `"format": 1`, `"format": 2`) }, []string{"format 2"}},
		"a record that cannot be read": {func(s *site) { rewrite(s, "{", "") }, []string{"cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c.damage(s)
			for range 2 { // it stays refused
				err := s.open()
				for _, want := range append(c.says, "broker at "+s.cfg.NATSURL, "NATS_URL", "orchestrator restore", "--accept-loss") {
					if !errors.Is(err, broker.ErrStoreDamaged) || !strings.Contains(err.Error(), want) {
						t.Fatalf("Open = %v, want it to say %q", err, want)
					}
				}
			}
			s.cfg.AcceptLoss = true
			if err := s.open(); err != nil {
				t.Fatalf("with the loss accepted: %v", err)
			}
			s.cfg.AcceptLoss = false
			if err := s.open(); err != nil {
				t.Fatalf("after the loss was accepted: %v", err)
			}
		})
	}
}

// What a broker lets go as it should, and whatever else is the same broker still, is no loss.
func TestRemoteThatHasLostNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *site){
		"nothing happened":        func(*site) {},
		"it was started anew":     func(s *site) { s.serve(s.store.Dir) },
		"it goes by another name": func(s *site) { s.cfg.NATSURL = strings.Replace(s.cfg.NATSURL, "127.0.0.1", "localhost", 1) },
		"it is reached with a password": func(s *site) {
			s.cfg.NATSURL = strings.Replace(s.cfg.NATSURL, "nats://", "nats://me:s3cret@", 1)
		},
		"it has a new stream":      func(s *site) { s.stream("CHIFFON_NEW") },
		"a stream of others' went": func(s *site) { s.stream("OTHERS"); s.drop("OTHERS") },
		"everything in a stream was purged": func(s *site) {
			stream, err := s.js().Stream(s.Context(), subject.TasksStream)
			if err == nil {
				err = stream.Purge(s.Context())
			}
			if err != nil {
				s.Fatal(err)
			}
			s.serve(s.store.Dir)
		},
		"everything in a stream has expired": func(s *site) {
			js := s.js()
			stream, err := js.Stream(s.Context(), subject.TasksStream)
			if err != nil {
				s.Fatal(err)
			}
			cfg := stream.CachedInfo().Config
			cfg.MaxAge, cfg.Duplicates = 100*time.Millisecond, 100*time.Millisecond
			if stream, err = js.UpdateStream(s.Context(), cfg); err != nil {
				s.Fatal(err)
			}
			s.until("the stream is empty", func() bool {
				info, err := stream.Info(s.Context())
				return err == nil && info.State.Msgs == 0
			})
			s.serve(s.store.Dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			last := s.ends()
			s.raise(last)
			change(s)
			for range 2 {
				if err := s.open(); err != nil {
					t.Fatal(err)
				}
			}
			if got := s.recorded(subject.TasksStream); got != last {
				t.Errorf("the task log ends with %d in the record, want %d: it ended there", got, last)
			}
			if data, err := os.ReadFile(s.record()); err != nil || bytes.Contains(data, []byte("s3cret")) {
				t.Errorf("the record has a password: %s, %v", data, err)
			}
		})
	}
}
