package runner

import (
	"log/slog"
	"strings"
	"testing"

	"chiffon/pkg/settings"
	"chiffon/pkg/subject"
)

func TestIDOfAHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]subject.AgentID{
		"nas":                         "nas",
		"Web-1.example.org":           "web-1",
		"my_host":                     "my-host",
		"-odd-":                       "odd",
		"7d4f.internal":               "host-7d4f",
		strings.Repeat("a", 70):       subject.AgentID(strings.Repeat("a", 63)),
		"1" + strings.Repeat("a", 70): subject.AgentID("host-1" + strings.Repeat("a", 57)),
	} {
		got := idOf(host)
		if got != want || got.Check() != nil {
			t.Errorf("idOf(%q) = %q (%v), want %q", host, got, got.Check(), want)
		}
	}
}

func TestZeroMeansDefault(t *testing.T) {
	t.Parallel()
	c := Config{Host: "nas.example.org"}
	if err := c.complete(); err != nil {
		t.Fatal(err)
	}
	if c.ID != "nas" || c.Type != "infra" || c.Slots != 1 || c.NATSURL != "nats://127.0.0.1:4222" || c.LogLevel != slog.LevelInfo ||
		len(c.WorkDirs) == 0 || c.WorkDirs[0] != "/etc/chiffon/work.d" {
		t.Errorf("defaults are %+v", c)
	}
}

func TestEverySettingSaysWhatItMeans(t *testing.T) {
	t.Parallel()
	for _, row := range settings.Describe("AGENTRUNNER", &Config{}) {
		if row.Meaning == "" {
			t.Errorf("%s has no meaning", row.Name)
		}
	}
}

// Each mistake is named, not only the first.
func TestAllMistakesAtOnce(t *testing.T) {
	t.Parallel()
	c := Config{ID: "No", Type: "orchestrator", Slots: -1, Drain: -1, NATSURL: "nats://192.0.2.1:4222"}
	err := c.complete()
	if err == nil {
		t.Fatal("complete() = nil")
	}
	for _, want := range []string{"AGENTRUNNER_ID", "AGENTRUNNER_TYPE", "AGENTRUNNER_SLOTS", "AGENTRUNNER_DRAIN", "NATS_URL"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("complete() = %v, want %s named", err, want)
		}
	}
}
