//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"chiffon/orchestrator/client"
)

// smallDisk is a file system of its own, mounted where the orchestrator keeps its state. It goes with the test.
func smallDisk(tb testing.TB, dir, size string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("a file system of its own needs root: a full disk is not tested")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=700,size="+size, "chiffon-test", dir).CombinedOutput(); err != nil {
		tb.Skipf("a full disk is not tested: mount: %v: %s", err, out)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			tb.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// fill leaves about so many bytes free, and returns the file that takes the rest.
func fill(tb testing.TB, dir string, leave int64) string {
	tb.Helper()
	f, err := os.Create(filepath.Join(dir, "other-data"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			tb.Fatal(err)
		}
		free := int64(st.Bavail) * st.Bsize
		if free <= leave {
			return f.Name()
		}
		if _, err := f.Write(block[:min(int64(len(block)), free-leave)]); err != nil {
			if errors.Is(err, syscall.ENOSPC) {
				return f.Name()
			}
			tb.Fatal(err)
		}
	}
}

// repeats is how often a test does what it does; CHIFFON_REPEATS asks for more.
func repeats(tb testing.TB, n int) int {
	tb.Helper()
	if text := os.Getenv("CHIFFON_REPEATS"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			tb.Fatalf("CHIFFON_REPEATS=%s: %v", text, err)
		}
	}
	return n
}

// The disk fills under a running task: submissions are refused before the store freezes; then it is full to the last
// byte, the store freezes, and the work's end waits in the runner's spool. Room is made, and everything is recorded
// without another hand.
func TestDiskFull(t *testing.T) {
	for round := range repeats(t, 2) {
		t.Run(fmt.Sprint("round ", round), diskFull)
	}
}

func diskFull(t *testing.T) {
	h := &house{tb: t, dir: t.TempDir()}
	state := filepath.Join(h.dir, "state")
	smallDisk(t, state, "64m")
	endUp := h.up()
	witness := filepath.Join(h.dir, "witness")
	endRunner := h.runner("one", "AGENTRUNNER_ALLOW_COMMANDS=sh *", "AGENTRUNNER_SLOTS=4")
	c := h.client()
	gate := filepath.Join(h.dir, "gate")
	script := fmt.Sprintf("echo begun >> %[1]s; while ! [ -e %[2]s ]; do sleep 0.05; done; echo out; echo ended >> %[1]s", witness, gate)
	var ids []string
	for range 3 {
		ids = append(ids, string(h.submitCommand(c, script)))
	}
	h.until("all have begun", func() bool { return strings.Count(read(witness), "begun") == 3 })

	// Submissions themselves bring it to the reserve: a refusal that says why, and the store still takes what runs.
	taken := fill(t, state, 20<<20)
	large := commandOf("true")
	large.Parameters = fmt.Appendf(nil, `{"argv":["sh"],"stdin":%q}`, strings.Repeat("x", 500_000))
	large.On = map[string]string{"site": "nowhere"}
	held := 0
	for {
		_, _, err := c.Submit(t.Context(), large)
		if err == nil && held < 20 {
			held++
			continue
		}
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Error(), "nearly full") || held < 2 {
			t.Fatalf("submission %d on a disk that fills: %v", held+1, err)
		}
		break
	}
	if code, out := code(t, h.cli("doctor")); code != 1 || !strings.Contains(out, "make room") {
		t.Errorf("doctor ends with %d: %s", code, out)
	}

	// Full: the work ends all the same.
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	taken = fill(t, state, 0)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.until("all work has ended", func() bool { return strings.Count(read(witness), "ended") == 3 })
	time.AfterFunc(3*time.Second, func() { _ = os.Remove(taken) }) // it stays full for a while, as disks do

	began := time.Now()
	for _, id := range ids {
		task, err := c.Wait(t.Context(), id)
		if err != nil || task.State != "succeeded" || task.Attempt != 1 {
			t.Errorf("task %s is %s after %d attempts, %v", id, task.State, task.Attempt, err)
		}
	}
	t.Logf("all ends are recorded %v after the disk was full", time.Since(began).Round(100*time.Millisecond))
	h.until("submissions are taken again", func() bool {
		_, _, err := c.Submit(t.Context(), commandOf("true"))
		return err == nil
	})
	if got := read(witness); strings.Count(got, "begun") != 3 || strings.Count(got, "ended") != 3 {
		t.Errorf("executions:\n%s", got)
	}

	// It starts on a disk with little room as well.
	endRunner()
	fill(t, state, 2<<20)
	endUp()
	h.up()
	if out, err := h.cli("task", "list", "--state", "held", "--quiet").Output(); err != nil || strings.Count(string(out), "\n") != held {
		t.Errorf("held after a restart: %s, %v, want %d", out, err, held)
	}
}

func read(path string) string {
	data, _ := os.ReadFile(path) // what is not there is empty
	return string(data)
}

func commandOf(script string) client.Submission {
	return client.Submission{AgentType: "infra", WorkType: "run_command", Parameters: fmt.Appendf(nil, `{"argv":["sh","-c",%q]}`, script)}
}

func (h *house) submitCommand(c *client.Client, script string) string {
	h.tb.Helper()
	task, _, err := c.Submit(h.tb.Context(), commandOf(script))
	if err != nil {
		h.tb.Fatalf("submit: %v", err)
	}
	return task.TaskID
}
