package e2e

import (
	"os"
	"strings"
	"testing"
)

// The demo does the main job by itself, and leaves nothing behind.
func TestDemoOnce(t *testing.T) {
	h := &house{tb: t, dir: t.TempDir()}
	temp := t.TempDir()
	got, out := code(t, h.command("orchestrator", []string{"TMPDIR=" + temp}, "demo", "--once"))
	if got != 0 {
		t.Fatalf("demo --once ended with %d:\n%s", got, out)
	}
	for _, want := range []string{"orchestrator at http://127.0.0.1:", "started on demo", "== STEP 1/8: System", "Summary", "succeeded"} {
		if !strings.Contains(out, want) {
			t.Errorf("the demo did not say %q:\n%s", want, out)
		}
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("the demo left %v behind (%v)", left, err)
	}
	for _, p := range processes(t) {
		if strings.Contains(p, temp) {
			t.Errorf("the demo left a process behind: %s", p)
		}
	}
}

// processes lists command lines and environments of everything that runs, as far as this user may see them.
func processes(t testing.TB) []string {
	t.Helper()
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		t.Skipf("no /proc: %v", err)
	}
	var all []string
	for _, d := range dirs {
		line, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if err != nil {
			continue // no process, or it has ended
		}
		env, _ := os.ReadFile("/proc/" + d.Name() + "/environ") // not ours
		all = append(all, d.Name()+" "+strings.ReplaceAll(string(line)+" "+string(env), "\x00", " "))
	}
	return all
}
