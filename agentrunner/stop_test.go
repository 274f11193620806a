package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/tasklog"
)

// Nothing runs: a runner that is told to end does so at once.
func TestStopWhileIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.run(w.state(nil))
	w.listens("ready", func(hb message.Heartbeat) bool { return hb.State == message.StateReady })
	began := time.Now()
	p.signal(syscall.SIGTERM)
	w.listens("its last word", func(hb message.Heartbeat) bool { return hb.State == message.StateStopped && len(hb.Running) == 0 })
	code, _ := p.exits()
	took := time.Since(began)
	t.Logf("from SIGTERM to the end: %s", took)
	if code != 0 || took > 10*time.Second {
		t.Errorf("exit code %d after %s", code, took)
	}
}

// A second signal stops what the first would have let finish, within seconds, and loses nothing.
func TestSecondSignalStopsNow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attempts string
		second   syscall.Signal
		want     tasklog.Kind
	}{
		"work that may be repeated": {"attempts: 4\n", syscall.SIGTERM, tasklog.AttemptFailed},
		"work of a single try":      {"attempts: 1\n", syscall.SIGINT, tasklog.Error},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.reply.LeaseSeconds = 3 * 3600
			p := w.run(w.state(map[string]string{"hard": hard + test.attempts}), "AGENTRUNNER_DRAIN=1h", "AGENTRUNNER_HEARTBEAT=1h")
			door := filepath.Join(t.TempDir(), "door")
			id := w.submit("hard", door)
			w.appears(door + ".up")
			w.appears(door + ".far")
			p.signal(syscall.SIGTERM)
			w.listens("that it drains, at once", func(hb message.Heartbeat) bool { return hb.State == message.StateDraining })
			began := time.Now()
			p.signal(test.second)
			code, log := p.exits()
			took := time.Since(began)
			t.Logf("from the second signal to the end: %s", took)
			if code != 0 || took > 50*time.Second || !strings.Contains(log, "running work is stopped at once") {
				t.Errorf("exit code %d after %s", code, took)
			}
			if w.runs(door+".up") || w.runs(door+".far") {
				t.Error("the runner has ended, and something of the work still runs")
			}
			if f := w.entry(id, test.want).Message.Failure; f.Code != fault.AgentUnavailable {
				t.Errorf("reported %+v", f)
			}
		})
	}
}

// A request that this host has no room for is told at once, long before the next heartbeat is due.
func TestRefusalIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reply.LeaseSeconds = 3 * 3600
	w.run(w.state(nil), "AGENTRUNNER_HEARTBEAT=1h")
	w.listens("ready", func(hb message.Heartbeat) bool { return hb.State == message.StateReady })
	id := w.submit("dance", "")
	hb := w.listens("with the refusal", func(hb message.Heartbeat) bool { return len(hb.Refused) == 1 })
	if r := hb.Refused[0]; r.TaskID != id || r.Code != fault.UnsupportedWorkType || r.Message == "" {
		t.Errorf("refused %+v", r)
	}
}
