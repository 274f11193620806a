package cli

import (
	"context"
	"testing"
)

// A service manager that stops the orchestrator while it starts sees it end well.
func TestUpIsStoppedBeforeItIsUp(t *testing.T) {
	t.Setenv("ORCHESTRATOR_STATE", t.TempDir()) // so it is not parallel
	t.Setenv("ORCHESTRATOR_LISTEN", "127.0.0.1:0")
	t.Setenv("ORCHESTRATOR_BROKER_LISTEN", "127.0.0.1:0")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, stderr, code := play(t, ctx, newFake(t), false, "", "up"); code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
