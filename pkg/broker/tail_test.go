package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

func roundTrip(t *testing.T, from, into any) {
	t.Helper()
	data, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// sure sends a numbered message until it is stored.
func sure(t *testing.T, c *broker.Client, subj string, n int) {
	t.Helper()
	for {
		r, err := c.Send(subj, []byte(itoa(n)+" "))
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err = r.Wait(ctx)
			cancel()
		}
		if err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) } // a number always encodes

// The server stops and comes back, twice, while a stream is followed: nothing is missing, nothing comes twice.
func TestTailOverRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, c0 := natstest.Start(t, broker.ServerConfig{Dir: dir, Listen: "127.0.0.1:0", Relaxed: true})
	url := s.URL()
	listen := strings.TrimPrefix(url, "nats://")
	c := natstest.Connect(t, broker.Config{URL: url, Timeout: time.Second})
	sender := natstest.Connect(t, broker.Config{URL: url, Timeout: time.Second})
	c0.Close()
	subj := subject.Status(newTask(), "web-1")
	const each, parts = 200, 3
	for i := range each {
		sure(t, sender, subj, i)
	}
	got, seqs := make(chan broker.Msg, each*parts*2), map[uint64]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for m, err := range c.Tail(ctx, subject.StatusStream, 1) {
			if err != nil {
				t.Errorf("tail: %v", err)
				return
			}
			got <- m
		}
	}()
	next := 0
	read := func(upTo int) {
		for next < upTo {
			var m broker.Msg
			select {
			case m = <-got:
			case <-t.Context().Done():
				t.Fatalf("message %d does not come", next)
			}
			if seqs[m.Seq] || m.Seq != uint64(len(seqs)+1) {
				t.Fatalf("message at %d comes behind %d others", m.Seq, len(seqs))
			}
			seqs[m.Seq] = true
			if n := numberOf(m); n == next {
				next++
			} else if n > next { // less is a message that was sent again
				t.Fatalf("message %d comes, want %d", n, next)
			}
		}
	}
	read(each)
	for part := 1; part < parts; part++ {
		s.Stop()
		var err error
		if s, err = broker.Start(broker.ServerConfig{Dir: dir, Listen: listen, Relaxed: true, SyncEvery: time.Minute}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		for i := range each {
			sure(t, sender, subj, part*each+i)
		}
		read((part + 1) * each)
	}
}

func TestTailEnds(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	for _, err := range c.Tail(t.Context(), "NO_SUCH_STREAM", 1) {
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("no such stream: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for m, err := range c.Tail(ctx, subject.StatusStream, 1) {
		t.Errorf("a context that has ended yields %+v, %v", m, err)
	}
	subj := subject.Status(newTask(), "web-1")
	fill(t, c, subj, 0, 3, 0)
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for m, err := range c.Tail(ctx, subject.StatusStream, 2) {
		if err != nil || m.Seq != uint64(n+2) {
			t.Fatalf("%+v, %v", m, err)
		}
		if n++; n == 2 {
			cancel() // while it waits for what comes
		}
	}
	if n != 2 {
		t.Errorf("%d messages from the second on, want 2", n)
	}
	closed := make(chan error, 1)
	other := make(chan struct{})
	go func() {
		for _, err := range c.Tail(t.Context(), subject.StatusStream, 3) {
			if err == nil {
				close(other)
				continue
			}
			closed <- err
		}
	}()
	<-other
	c.Close()
	if err := <-closed; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("closed connection: %v", err)
	}
}

// A consumer may live and send nothing, as one does whose server is behind. Here it is paused.
func TestTailOverStuckConsumer(t *testing.T) {
	t.Parallel()
	s, c := listening(t)
	js, err := jetstream.New(raw(t, s))
	if err != nil {
		t.Fatal(err)
	}
	subj := subject.Status(newTask(), "web-1")
	fill(t, c, subj, 0, 1, 0)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got := make(chan int, 8)
	go func() {
		for m := range c.Tail(ctx, subject.StatusStream, 1) {
			got <- numberOf(m)
		}
		close(got)
	}()
	stream, err := js.Stream(ctx, subject.StatusStream)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ { // until one came through the consumer
		if sent := <-got; sent != n-1 {
			t.Fatalf("message %d comes, want %d", sent, n-1)
		}
		paused := 0
		for name := range stream.ConsumerNames(ctx).Name() {
			if _, err := stream.PauseConsumer(ctx, name, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			paused++
		}
		fill(t, c, subj, n, n+1, 0)
		if paused > 0 {
			if sent, ok := <-got; !ok || sent != n {
				t.Fatalf("message %d comes (%v), want %d", sent, ok, n)
			}
			return
		}
	}
}
