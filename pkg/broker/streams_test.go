package broker_test

import (
	"bytes"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

func bare(t *testing.T) *broker.Client {
	t.Helper()
	s, err := broker.Start(broker.ServerConfig{Dir: t.TempDir(), Relaxed: true, SyncEvery: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return natstest.Connect(t, broker.Config{Embedded: s})
}

func configs(t *testing.T, c *broker.Client) (all []jetstream.StreamConfig) {
	t.Helper()
	for _, want := range broker.Streams(broker.DefaultLimits, 1) {
		info, err := c.StreamInfo(t.Context(), want.Name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, info.Config)
	}
	return all
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	c := bare(t)
	small := broker.LimitsFor(64 << 20)
	var wg sync.WaitGroup
	for range 4 { // several orchestrators begin at once
		wg.Go(func() {
			if err := c.Ensure(t.Context(), small, 1); err != nil {
				t.Errorf("ensure: %v", err)
			}
		})
	}
	wg.Wait()
	first := configs(t, c)
	for i, want := range broker.Streams(small, 1) {
		got := first[i]
		if got.MaxBytes != want.MaxBytes || got.Discard != want.Discard || got.MaxAge != want.MaxAge || !reflect.DeepEqual(got.Subjects, want.Subjects) ||
			got.DenyDelete != want.DenyDelete || got.DenyPurge != want.DenyPurge || !got.AllowDirect || got.AllowAtomicPublish != want.AllowAtomicPublish || got.Compression != want.Compression {
			t.Errorf("%s is %+v", want.Name, got)
		}
	}
	id := newTask()
	boss.next(t, c, id, tasklog.Submitted, tasklog.State{})
	ensure := func(l broker.Limits) []jetstream.StreamConfig {
		t.Helper()
		if err := c.Ensure(t.Context(), l, 1); err != nil {
			t.Fatal(err)
		}
		return configs(t, c)
	}
	if again := ensure(small); !reflect.DeepEqual(again, first) {
		t.Errorf("the second time changes %+v\nto %+v", first, again)
	}
	wide := broker.LimitsFor(256 << 20)
	if wider := ensure(wide); wider[0].MaxBytes != wide.Tasks || wider[0].MaxBytes <= small.Tasks {
		t.Errorf("wider is %d, was %d", wider[0].MaxBytes, small.Tasks)
	}
	if kept := ensure(small); kept[0].MaxBytes != wide.Tasks {
		t.Errorf("a stream of %d bytes becomes one of %d", wide.Tasks, kept[0].MaxBytes)
	}
	if log, err := c.Task(t.Context(), id); err != nil || len(log) != 1 {
		t.Errorf("after all that: %d entries, %v", len(log), err)
	}
	for _, b := range broker.Buckets(1) {
		kv, err := c.Bucket(t.Context(), b.Bucket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), "key", []byte("value")); err != nil {
			t.Errorf("%s: %v", b.Bucket, err)
		}
	}
	if _, err := c.Bucket(t.Context(), "no_such_bucket"); err == nil {
		t.Error("a bucket that was never made opens")
	}
}

func TestLimitsFor(t *testing.T) {
	t.Parallel()
	sum := func(l broker.Limits) int64 { return l.Tasks + l.Status + l.Mail + l.Audit }
	if got := broker.LimitsFor(1 << 40); got != broker.DefaultLimits {
		t.Errorf("much room: %+v", got)
	}
	for _, capacity := range []int64{64 << 20, 1 << 30, 10 << 30, 13 << 30} {
		got := broker.LimitsFor(capacity)
		if sum(got) > capacity/10*9 || sum(got) < capacity/10*9-4 || got.Tasks < got.Status || got.Mail < 1<<20 {
			t.Errorf("LimitsFor(%d) = %+v, together %d", capacity, got, sum(got))
		}
	}
	if got := broker.LimitsFor(0); got.Mail != 1<<20 {
		t.Errorf("no room: %+v", got)
	}
}

// A stream that is full refuses new entries and says so; nothing old is dropped for them.
func TestFull(t *testing.T) {
	t.Parallel()
	c := bare(t)
	limits := broker.LimitsFor(1 << 30)
	limits.Tasks = 1 << 20
	if err := c.Ensure(t.Context(), limits, 1); err != nil {
		t.Fatal(err)
	}
	first := newTask()
	st := boss.next(t, c, first, tasklog.Submitted, tasklog.State{})
	text := string(bytes.Repeat([]byte("x"), 100<<10))
	for n := 0; ; n++ {
		d, err := boss.draft(newTask(), tasklog.Submitted, message.Extension{Description: text}, tasklog.State{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.Append(t.Context(), d); err == nil && n < 20 {
			continue
		}
		if !broker.Full(err) || n < 5 {
			t.Fatalf("append %d into 1 MiB: %v", n, err)
		}
		break
	}
	if log, err := c.Task(t.Context(), first); err != nil || len(log) != 1 {
		t.Errorf("the first task has %d entries, %v", len(log), err)
	}
	writer{"web-1", 7}.next(t, c, first, tasklog.Started, st) // what is small still fits
	if broker.Full(broker.ErrRefused) || broker.Full(nil) {
		t.Error("anything counts as full")
	}
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	if d, a, err := c.ConsumerState(t.Context(), "type_infra_normal"); d != 0 || a != 0 || err != nil {
		t.Errorf("no consumer: %d, %d, %v", d, a, err)
	}
	if _, err := c.Consumer(t.Context(), "type_infra_normal"); err == nil {
		t.Error("a consumer that was never made is found")
	}
	boss.next(t, c, newTask(), tasklog.Submitted, tasklog.State{}) // before there is anybody to take it
	for range 2 {
		names, err := c.TypeConsumers(t.Context(), "infra")
		if err != nil || len(names) != 4 || names[0] != "type_infra_critical" || names[2] != "type_infra_normal" || names[3] != "type_infra_low" {
			t.Fatalf("%q, %v", names, err)
		}
		if names, err = c.AgentConsumers(t.Context(), "web-1"); err != nil || names[0] != "agent_web-1_critical" {
			t.Fatalf("%q, %v", names, err)
		}
	}
	second := boss.next(t, c, newTask(), tasklog.Submitted, tasklog.State{}).TailSeq
	cons, err := c.Consumer(t.Context(), "type_infra_normal")
	if err != nil {
		t.Fatal(err)
	}
	state := func(delivered, acked uint64) {
		t.Helper()
		if d, a, err := c.ConsumerState(t.Context(), "type_infra_normal"); d != delivered || a != acked || err != nil {
			t.Errorf("state is %d, %d, %v; want %d, %d", d, a, err, delivered, acked)
		}
	}
	state(0, 0)
	for _, acked := range []uint64{1, second} {
		m, err := cons.Next()
		if err != nil {
			t.Fatal(err)
		}
		state(acked, acked-1)
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
		state(acked, acked)
	}
	if cfg := cons.CachedInfo().Config; cfg.MaxDeliver != -1 || cfg.AckWait != broker.AckWait || cfg.FilterSubject != subject.ForType("infra", subject.Normal) {
		t.Errorf("%+v", cfg)
	}
}

// A broker that has less room than the streams ask for gets smaller streams, all in proportion.
func TestEnsureOnASmallBroker(t *testing.T) {
	t.Parallel()
	s, err := broker.Start(broker.ServerConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	c := natstest.Connect(t, broker.Config{Embedded: s})
	disk, err := s.Room()
	if err != nil {
		t.Fatal(err)
	}
	room := disk.All / 4 * 3
	if capacity := s.StoreCapacity(); capacity <= 0 || capacity > room {
		t.Errorf("capacity %d of %d", capacity, room)
	}
	if err := c.Ensure(t.Context(), broker.Limits{Tasks: 8 * room, Status: 4 * room, Mail: room, Audit: room}, 1); err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	var sum int64
	for _, name := range []string{subject.TasksStream, subject.StatusStream, subject.MailStream, subject.AuditStream} {
		info, err := c.StreamInfo(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		sizes[name] = info.Config.MaxBytes
		sum += info.Config.MaxBytes
	}
	if sum > room || sum < room/4 || sizes[subject.TasksStream] < 2*sizes[subject.StatusStream]-16 {
		t.Errorf("streams take %v of %d", sizes, room)
	}
}
