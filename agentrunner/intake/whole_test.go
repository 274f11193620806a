package intake

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"chiffon/agentrunner/spool"
	"chiffon/agentrunner/work"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// Whatever an attempt came to: its entry has what the protocol wants in the context of each code, and what was known
// where the fault was found goes before what the attempt knows.
func TestFaultsOfAttemptsAreWhole(t *testing.T) {
	t.Parallel()
	i := &Intake{cfg: Config{Agent: "attic", Type: "infra", Log: slog.New(slog.DiscardHandler)}}
	s := i.newSlot(spool.Record{
		Task: subject.TaskID(message.NewUUID()), Attempt: 2, Allowed: 2, Boot: 7, Trace: message.NewUUID(), Request: message.NewUUID(),
	})
	for name, c := range map[string]struct {
		fault *fault.Fault
		want  map[string]any
	}{
		"a timeout that says nothing":           {fault.New(fault.Timeout, "x"), map[string]any{"attempted_retries": 1}},
		"a timeout that says when":              {fault.New(fault.Timeout, "x").With("last_attempt", "2026-01-02T03:04:05Z"), map[string]any{"last_attempt": "2026-01-02T03:04:05Z"}},
		"unavailable, and nothing more":         {fault.New(fault.AgentUnavailable, "x"), map[string]any{"agent_id": "attic", "last_heartbeat": nil}},
		"unavailable, and when it was heard":    {fault.New(fault.AgentUnavailable, "x").With("last_heartbeat", "y"), map[string]any{"agent_id": "attic", "last_heartbeat": "y"}},
		"a limit":                               {short("max_memory_mb", "memory", 1, 2, 3), map[string]any{"limit_name": "max_memory_mb", "available": 1, "required": 3}},
		"a request that cannot be read":         {fault.Invalid("payload.parameters", "x"), map[string]any{"field_name": "payload.parameters"}},
		"work that died with its runner":        {i.died(s), map[string]any{"begun": false}},
		"work that was out of reach of a lease": {i.leaseOut(s).Fault, map[string]any{}},
	} {
		d, err := i.draft(s, ending{outcome: work.Outcome{Status: message.ResultFailed, Fault: c.fault}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m, err := message.Read(d.Data)
		if err != nil || m.Failure == nil {
			t.Errorf("%s: %v, %v, want an error", name, m, err)
			continue
		}
		got := m.Failure.Context
		for _, field := range m.Failure.Code.Context() {
			if v, ok := got[field.Name]; !ok || v == nil && !field.Nullable {
				t.Errorf("%s: context %v lacks %s", name, got, field.Name)
			}
		}
		c.want["task_id"] = string(s.task)
		for key, want := range c.want {
			if v, ok := got[key]; !ok || !same(v, want) {
				t.Errorf("%s: %s = %v, want %v", name, key, v, want)
			}
		}
	}
}

// What a newer version has in hand is neither guessed at nor passed over: the runner does not start.
func TestNewerRecordStopsTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state, err := spool.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	path := filepath.Join(dir, "attempts", string(message.NewUUID())+".json")
	if err := os.WriteFile(path, []byte(`{"v": 99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = New(Config{Spool: state, Dir: filepath.Join(dir, "work"), Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, spool.ErrNewer) || !strings.Contains(err.Error(), path) {
		t.Errorf("New = %v, want ErrNewer and the file", err)
	}
}

// same compares what JSON may have made a float64.
func same(got, want any) bool {
	if n, ok := want.(int); ok {
		switch g := got.(type) {
		case float64:
			return g == float64(n)
		case int:
			return g == n
		case int64:
			return g == int64(n)
		}
	}
	return got == want
}
