//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

// A backup under load, restored elsewhere: every task that was accepted before the backup began is there with the end
// that it had, and those that were open go on and end.
func TestBackupUnderLoad(t *testing.T) {
	h := open(t)
	endRunner := h.runner("one", "AGENTRUNNER_SLOTS=2", "AGENTRUNNER_LOG_LEVEL=warn")
	c := h.client()
	noop := client.Submission{AgentType: "infra", WorkType: "noop", Parameters: []byte("{}")}

	var mu sync.Mutex
	var accepted []string
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				task, _, err := c.Submit(t.Context(), noop)
				if err != nil {
					t.Errorf("submit under load: %v", err)
					return
				}
				mu.Lock()
				accepted = append(accepted, task.TaskID)
				mu.Unlock()
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(accepted) }
	h.until("there is a load", func() bool { return count() > 300 })

	mu.Lock()
	before := append([]string{}, accepted...)
	mu.Unlock()
	ended := map[string]string{}
	for _, id := range before {
		if task, err := c.Task(t.Context(), id); err != nil {
			t.Fatal(err)
		} else if task.EndedAt != nil {
			ended[id] = string(task.State)
		}
	}
	file := filepath.Join(h.dir, "chiffon.tar")
	began := time.Now()
	if code, out := code(t, h.cli("backup", file)); code != 0 {
		t.Fatalf("backup ends with %d: %s", code, out)
	}
	took, after := time.Since(began), count()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v, %v", info.Mode(), err)
	}
	h.until("the load goes on", func() bool { return count() > after+50 })
	close(stop)
	load.Wait()

	out, err := h.cli("backup", "--verify", file, "-o", "json").Output()
	var rep struct {
		Tasks, Open, Ended int
		Damage             []string
	}
	if err != nil || json.Unmarshal(out, &rep) != nil || rep.Tasks < len(before) || rep.Ended < len(ended) || len(rep.Damage) > 0 {
		t.Errorf("verify: %v, %s", err, out)
	}
	t.Logf("backup in %v under load, %d tasks accepted before (%d ended), %d meanwhile; in the file %d ended, %d open",
		took, len(before), len(ended), after-len(before), rep.Ended, rep.Open)

	// Where data is, nothing is restored; elsewhere all of it.
	if code, out := code(t, h.cli("restore", file)); code != 1 || !strings.Contains(out, "another orchestrator uses it") {
		t.Errorf("restore beside a running orchestrator ends with %d: %s", code, out)
	}
	endRunner()
	there := &house{tb: t, dir: t.TempDir()}
	if code, out := code(t, there.cli("restore", file)); code != 0 {
		t.Fatalf("restore ends with %d: %s", code, out)
	}
	if code, out := code(t, there.cli("restore", file)); code != 1 || !strings.Contains(out, "data already") {
		t.Errorf("a second restore ends with %d: %s", code, out)
	}
	there.up()
	there.runner("one", "AGENTRUNNER_SLOTS=2", "AGENTRUNNER_LOG_LEVEL=warn")
	c2 := there.client()
	for _, id := range before {
		task, err := c2.Wait(t.Context(), id)
		if err != nil || task.State != view.Succeeded || ended[id] != "" && string(task.State) != ended[id] {
			t.Errorf("task %s is %s, %v; it was %s", id, task.State, err, ended[id])
		}
	}
}
