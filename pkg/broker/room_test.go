package broker_test

import (
	"testing"

	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/tasklog"
)

func TestRoomShort(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for name, c := range map[string]struct {
		room    broker.Room
		reserve int64
		short   bool
	}{
		"a small disk":             {broker.Room{Free: 17 * mib, All: 64 * mib}, 16 * mib, false},
		"a small disk, full":       {broker.Room{Free: 15 * mib, All: 64 * mib}, 16 * mib, true},
		"a twentieth":              {broker.Room{Free: 499 * mib, All: 10_000 * mib}, 500 * mib, true},
		"a large disk, most of it": {broker.Room{Free: 1025 * mib, All: 10_000_000 * mib}, 1024 * mib, false},
	} {
		if got := c.room; got.Reserve() != c.reserve || got.Short() != c.short {
			t.Errorf("%s: %+v has a reserve of %d, short %v, want %d, %v", name, got, got.Reserve(), got.Short(), c.reserve, c.short)
		}
	}
	if room, err := broker.RoomIn(t.TempDir()); err != nil || room.Free <= 0 || room.All < room.Free {
		t.Errorf("%+v, %v", room, err)
	}
	if _, err := broker.RoomIn("/does/not/exist"); err == nil {
		t.Error("a directory that is not there has room")
	}
}

// A server that is started anew has the same address and everything that was acknowledged; clients come back by
// themselves, those in the process too.
func TestRestart(t *testing.T) {
	t.Parallel()
	s, inside := natstest.Start(t, broker.ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	outside := natstest.Connect(t, broker.Config{URL: s.URL()})
	url, id := s.URL(), newTask()
	st := boss.next(t, outside, id, tasklog.Submitted, tasklog.State{})
	for range 2 {
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		if s.URL() != url || s.Health() != nil {
			t.Errorf("it is at %s, was at %s; %v", s.URL(), url, s.Health())
		}
		st = boss.next(t, outside, id, tasklog.Queued, st)
		st = boss.next(t, inside, id, tasklog.Queued, st)
	}
	if log, err := inside.Task(t.Context(), id); err != nil || len(log) != 5 {
		t.Errorf("%d entries, %v", len(log), err)
	}
	s.Stop()
	if err := s.Restart(); err == nil {
		t.Error("a server that was stopped starts anew")
	}
}
