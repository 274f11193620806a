package broker_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// Two servers on one store would lose acknowledged data without a word. The second is told who has it.
func TestStoreIsLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, c := natstest.Start(t, broker.ServerConfig{Dir: dir, Relaxed: true})
	id := newTask()
	st := boss.next(t, c, id, tasklog.Submitted, tasklog.State{})
	said := startProcess(t, dir, "").said
	if !strings.HasPrefix(said, "error true ") || !strings.Contains(said, dir) || !strings.Contains(said, "pid "+strconv.Itoa(os.Getpid())+")") {
		t.Errorf("a second process says %q", said)
	}
	if _, err := broker.Start(broker.ServerConfig{Dir: dir}); !errors.Is(err, broker.ErrStoreLocked) {
		t.Errorf("the same process again: %v", err)
	}
	boss.next(t, c, id, tasklog.Queued, st)
	s.Stop()
	s.Stop() // twice does no harm
	_, c = natstest.Start(t, broker.ServerConfig{Dir: dir, Relaxed: true})
	if log, err := c.Task(t.Context(), id); err != nil || len(log) != 2 || tasklog.Fold(log).Void != 0 {
		t.Errorf("after all that the log is %+v, %v", log, err)
	}
}

// The lock goes with the process, however that ends.
func TestLockGoesWithTheProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	if p.said != "" {
		t.Fatalf("a broker that listens nowhere says %q", p.said)
	}
	if _, err := broker.Start(broker.ServerConfig{Dir: dir}); !errors.Is(err, broker.ErrStoreLocked) || !strings.Contains(err.Error(), strconv.Itoa(p.cmd.Process.Pid)) {
		t.Errorf("while another process has it: %v", err)
	}
	p.kill()
	s, err := broker.Start(broker.ServerConfig{Dir: dir})
	if err != nil {
		t.Fatalf("after kill -9: %v", err)
	}
	s.Stop()
}

func TestAddress(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct{ listen, says string }{
		"taken":         {taken.Addr().String(), "address already in use"},
		"all":           {"0.0.0.0:0", "not a loopback address"},
		"all, no host":  {":4222", "not a loopback address"},
		"all of IPv6":   {"[::]:0", "not a loopback address"},
		"a network's":   {"192.0.2.7:4222", "not a loopback address"},
		"a name":        {"broker.example:4222", "not a loopback address"},
		"no port":       {"127.0.0.1", "missing port"},
		"port a word":   {"127.0.0.1:nats", "no number"},
		"port too high": {"127.0.0.1:70000", "invalid port"},
	} {
		dir := t.TempDir()
		s, err := broker.Start(broker.ServerConfig{Dir: dir, Listen: c.listen})
		if err == nil {
			s.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.listen) {
			t.Errorf("%s: listen on %s: %v, want %q", name, c.listen, err, c.says)
		}
		again, err := broker.Start(broker.ServerConfig{Dir: dir}) // what failed holds nothing
		if err != nil {
			t.Errorf("%s: the store stays locked: %v", name, err)
			continue
		}
		again.Stop()
	}
	for _, listen := range []string{"127.0.0.1:0", "localhost:0", "[::1]:0"} {
		s, err := broker.Start(broker.ServerConfig{Dir: t.TempDir(), Listen: listen})
		if err != nil && strings.HasPrefix(listen, "[") {
			continue // no IPv6 here
		}
		if err != nil {
			t.Errorf("%s: %v", listen, err)
			continue
		}
		if err := broker.CheckLoopback(s.URL()); err != nil || s.Health() != nil || s.StoreCapacity() <= 0 {
			t.Errorf("%s: URL %s (%v), health %v, capacity %d", listen, s.URL(), err, s.Health(), s.StoreCapacity())
		}
		s.Stop()
	}
}

// A store that cannot be read is an error: an empty one in its place would look like a fresh start.
func TestDamagedStore(t *testing.T) {
	t.Parallel()
	made := func(t *testing.T) (dir string, id subject.TaskID) {
		t.Helper()
		dir, id = t.TempDir(), newTask()
		s, c := natstest.Start(t, broker.ServerConfig{Dir: dir, Relaxed: true})
		boss.next(t, c, id, tasklog.Submitted, tasklog.State{})
		c.Close()
		s.Stop()
		return dir, id
	}
	stream := func(dir string, file ...string) string {
		return filepath.Join(append([]string{dir, "jetstream", "$G", "streams", subject.TasksStream}, file...)...)
	}
	for name, damage := range map[string]func(dir string) error{
		"the stream's description is cut": func(dir string) error { return os.Truncate(stream(dir, "meta.inf"), 10) },
		"the stream's description is gone": func(dir string) error {
			return os.Remove(stream(dir, "meta.inf"))
		},
		"its checksum is another": func(dir string) error {
			return os.WriteFile(stream(dir, "meta.sum"), []byte("0123456789abcdef"), 0o600)
		},
	} {
		dir, _ := made(t)
		if err := damage(dir); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		s, err := broker.Start(broker.ServerConfig{Dir: dir})
		if err == nil {
			s.Stop()
			t.Errorf("%s: it starts", name)
			continue
		}
		for _, says := range []string{subject.TasksStream, stream(dir), "backup"} {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v does not say %q", name, err, says)
			}
		}
		if err := os.RemoveAll(stream(dir)); err != nil { // what the error tells one to do
			t.Fatal(err)
		}
		if _, err = broker.Start(broker.ServerConfig{Dir: dir}); !errors.Is(err, broker.ErrStoreDamaged) {
			t.Errorf("%s: moved away, and nobody has accepted that: %v", name, err)
		}
		if s, err = broker.Start(broker.ServerConfig{Dir: dir, AcceptLoss: true}); err != nil {
			t.Errorf("%s: after it was moved away: %v", name, err)
			continue
		}
		s.Stop()
	}
	t.Run("the index is gone", func(t *testing.T) { // that one is made anew from what it points to
		dir, id := made(t)
		if err := os.RemoveAll(stream(dir, "msgs", "index.db")); err != nil {
			t.Fatal(err)
		}
		_, c := natstest.Start(t, broker.ServerConfig{Dir: dir, Relaxed: true})
		if log, err := c.Task(t.Context(), id); err != nil || len(log) != 1 {
			t.Errorf("%d entries, %v", len(log), err)
		}
	})
	t.Run("a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "store")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := broker.Start(broker.ServerConfig{Dir: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("a file as store: %v", err)
		}
	})
	t.Run("somebody else's", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "jetstream"), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := broker.Start(broker.ServerConfig{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
			if err == nil {
				s.Stop()
			}
			t.Errorf("a store that is none: %v", err)
		}
	})
}

func TestCheckLoopback(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"nats://127.0.0.1:4222":                       true,
		"nats://127.8.9.10:4222":                      true,
		"nats://localhost:4222":                       true,
		"nats://[::1]:4222":                           true,
		"nats://127.0.0.1":                            true,
		"nats://user:pw@127.0.0.1:4222":               true,
		"tls://127.0.0.1:4222":                        true,
		"nats://0.0.0.0:4222":                         false,
		"nats://192.0.2.7:4222":                       false,
		"nats://[2001:db8::1]:4222":                   false,
		"nats://broker.example:4222":                  false,
		"nats://127.0.0.1.example:4222":               false,
		"nats://localhost.example:4222":               false,
		"nats://127.0.0.1@192.0.2.7:422":              false,
		"nats://:4222":                                false,
		"127.0.0.1:4222":                              false,
		"localhost:4222":                              false,
		"127.0.0.1":                                   false,
		"":                                            false,
		"nats://":                                     false,
		"nats://127.0.0.1:4222,nats://192.0.2.7:4222": false,
	} {
		if err := broker.CheckLoopback(url); (err == nil) != ok {
			t.Errorf("CheckLoopback(%q) = %v, want ok %v", url, err, ok)
		}
	}
}
