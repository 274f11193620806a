package work

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"chiffon/agentrunner/child"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
)

// What an agent may not tell is refused where it is read: a heartbeat that cannot be written would end the runner.
func TestWhatMayNotBeTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a long description": {"description: " + strings.Repeat("x", message.MaxDescription+1) + "\n", "description has 4001 bytes"},
		"too many attempts":  {"attempts: 1001\n", "attempts is 1001"},
		"a large schema":     {"parameters: {type: object, description: " + strings.Repeat("x", message.MaxSchema) + "}\n", "parameters has"},
	} {
		_, problems := parse("x.yaml", []byte(c.text+"command: [\"true\"]\n"))
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, problems, c.want)
		}
	}
}

func TestMoreWorkTypesThanMayBeTold(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := range message.MaxOffers + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("work_%03d.yaml", n)), []byte("builtin: noop\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, problems := Load(Config{Dirs: []string{dir}})
	if got := len(c.Offers()); got != message.MaxOffers || len(problems) == 0 || !strings.Contains(problems[0].Error(), "no more") {
		t.Errorf("%d are offered, problems %v", got, problems)
	}
}

// A program that could not be started for want of processes or memory is no failure of its own: another attempt may do it.
func TestHostLacksWhatAStartTakes(t *testing.T) {
	t.Parallel()
	result := child.Outcome{ExitCode: 126, Err: "start /bin/x: resource temporarily unavailable", Lacking: true}
	got := judge(t.Context(), Attempt{Number: 1}, result, ended(result))
	if got.Fault == nil || got.Fault.Code != fault.AgentUnavailable || got.Fault.Message != result.Err || !got.Fault.Code.Retryable() {
		t.Errorf("%+v, want it tried again", got)
	}
}
