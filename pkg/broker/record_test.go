package broker_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// What the server passes over without a word is told at the start: a store never looks as if it had always been empty.
func TestStoreThatHasLost(t *testing.T) {
	t.Parallel()
	const tasks = 40
	made := func(t *testing.T) (dir string) {
		t.Helper()
		dir = filepath.Join(t.TempDir(), "store")
		s, c := natstest.Start(t, broker.ServerConfig{Dir: dir, Relaxed: true})
		for range tasks {
			boss.next(t, c, newTask(), tasklog.Submitted, tasklog.State{})
		}
		c.Close()
		s.Stop()
		return dir
	}
	streams := func(dir string, path ...string) string {
		return filepath.Join(append([]string{dir, "jetstream", "$G", "streams"}, path...)...)
	}
	block := func(dir string) string { return streams(dir, subject.TasksStream, "msgs", "1.blk") }
	rewrite := func(path, from, to string) error {
		data, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(data), from) {
			err = errors.New(path + " has no " + from)
		}
		if err == nil {
			err = os.WriteFile(path, []byte(strings.Replace(string(data), from, to, 1)), 0o600)
		}
		return err
	}
	for name, c := range map[string]struct {
		damage func(dir string) error
		says   string
	}{
		"the store is gone":     {os.RemoveAll, "1.blk is missing"},
		"the store is emptied":  {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "jetstream")) }, "1.blk is missing"},
		"a stream is gone":      {func(dir string) error { return os.RemoveAll(streams(dir, subject.TasksStream)) }, "1.blk is missing"},
		"a bucket is gone":      {func(dir string) error { return os.RemoveAll(streams(dir, "KV_"+broker.StateBucket)) }, "KV_chiffon_state"},
		"its messages are gone": {func(dir string) error { return os.RemoveAll(streams(dir, subject.TasksStream, "msgs")) }, "1.blk is missing"},
		"a block is gone":       {func(dir string) error { return os.Remove(block(dir)) }, "1.blk is missing"},
		"a block is cut":        {func(dir string) error { return os.Truncate(block(dir), 1000) }, "has 1000 bytes"},
		"a block is empty":      {func(dir string) error { return os.Truncate(block(dir), 0) }, "has 0 bytes"},
		"a newer record":        {func(dir string) error { return rewrite(broker.RecordOf(dir), `"format": 1`, `"format": 2`) }, "format 2"},
		"a newer server": {func(dir string) error {
			return rewrite(broker.RecordOf(dir), `"nats_server": "2.`, `"nats_server": "3.`)
		}, "nats-server 3."},
		"a record that is no JSON": {func(dir string) error { return os.WriteFile(broker.RecordOf(dir), []byte("{"), 0o600) }, "cannot be read"},
		"a block has zeros, and no index speaks for it": {func(dir string) error {
			f, err := os.OpenFile(block(dir), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 200), 2000)
			return errors.Join(err, f.Close(), os.Remove(streams(dir, subject.TasksStream, "msgs", "index.db")))
		}, "it had "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := made(t)
			if err := c.damage(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it stays refused
				s, err := broker.Start(broker.ServerConfig{Dir: dir})
				if err == nil {
					s.Stop()
				}
				if !errors.Is(err, broker.ErrStoreDamaged) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), dir) {
					t.Fatalf("start: %v, want %q", err, c.says)
				}
			}
			for range 2 { // accepted once, it is the truth from there on
				s, err := broker.Start(broker.ServerConfig{Dir: dir, AcceptLoss: true})
				if err != nil {
					t.Fatalf("with the loss accepted: %v", err)
				}
				s.Stop()
				if s, err = broker.Start(broker.ServerConfig{Dir: dir}); err != nil {
					t.Fatalf("after the loss was accepted: %v", err)
				}
				s.Stop()
			}
		})
	}
}

// What was not acknowledged, or is repaired from what is there, is no damage.
func TestStoreIsTakenAfterKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	var made []subject.TaskID
	for round := range 8 {
		p := startProcess(t, dir, "127.0.0.1:0")
		if !strings.HasPrefix(p.said, "nats://") {
			t.Fatalf("round %d: a broker after kill -9 says %q", round, p.said)
		}
		c := natstest.Connect(t, broker.Config{URL: p.said})
		if err := c.Ensure(t.Context(), broker.LimitsFor(1<<30), 1); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			id := newTask()
			boss.next(t, c, id, tasklog.Submitted, tasklog.State{})
			made = append(made, id)
			if len(made)%3 == 0 {
				if err := c.PurgeTask(t.Context(), subject.TasksStream, made[0], 0); err != nil {
					t.Fatal(err)
				}
				made = slices.Delete(made, 0, 1)
			}
		}
		p.kill()
		c.Close()
	}
	_, c := natstest.Start(t, broker.ServerConfig{Dir: dir})
	for _, id := range made {
		if log, err := c.Task(t.Context(), id); err != nil || len(log) != 1 {
			t.Errorf("task %s has %d entries, %v", id, len(log), err)
		}
	}
}

// After kill -9 the record of the run before still stands beside the store.
func TestStoreLostAfterKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	s, c := natstest.Start(t, broker.ServerConfig{Dir: dir})
	boss.next(t, c, newTask(), tasklog.Submitted, tasklog.State{})
	c.Close()
	s.Stop()
	startProcess(t, dir, "").kill()
	if err := os.RemoveAll(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.Start(broker.ServerConfig{Dir: dir}); !errors.Is(err, broker.ErrStoreDamaged) || !strings.Contains(err.Error(), "stream "+subject.AuditStream+" is missing") {
		t.Errorf("an emptied store after kill -9: %v", err)
	}
}
