package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"chiffon/pkg/message"
)

// Work types that are read again are told at once, long before the next heartbeat is due.
func TestReloadIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reply.LeaseSeconds = 3 * 3600
	state := w.state(map[string]string{"old": "command: [\"true\"]\n"})
	p := w.run(state, "AGENTRUNNER_HEARTBEAT=1h")
	w.listens("with its offers", func(hb message.Heartbeat) bool { return offers(hb, "old") })
	types := filepath.Join(state, "types")
	w.write(filepath.Join(types, "new.yaml"), "command: [\"true\"]\n")
	if err := os.Remove(filepath.Join(types, "old.yaml")); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	w.listens("with the new work type alone", func(hb message.Heartbeat) bool { return offers(hb, "new") && !offers(hb, "old") })
}
