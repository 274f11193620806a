package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/client"
)

// BenchmarkNoop is one task at a time through the whole product: a POST, the task log, a runner in a process of its
// own that does nothing, and the end read from the task's events. Run it with -benchtime 1000x.
func BenchmarkNoop(b *testing.B) {
	for _, durability := range []string{"sync", "relaxed"} {
		b.Run(durability, func(b *testing.B) {
			h := open(b, "ORCHESTRATOR_DURABILITY="+durability)
			h.runner("bench", "AGENTRUNNER_LOG_LEVEL=warn") // a line a task costs time too
			c := h.client()
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				t, _, err := c.Submit(b.Context(), client.Submission{AgentType: "infra", WorkType: "noop", Parameters: []byte("{}")})
				if err != nil {
					b.Fatal(err)
				}
				if t, err = c.Wait(b.Context(), t.TaskID); err != nil || t.State != "succeeded" {
					b.Fatalf("task %s is %s: %v", t.TaskID, t.State, err)
				}
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkIdle reports the memory of both programs when nothing happens, in MiB of PSS.
func BenchmarkIdle(b *testing.B) {
	h := open(b)
	h.runner("idle")
	for b.Loop() {
		// One look is enough: the programs have nothing to do.
	}
	for _, p := range processes(b) {
		if !strings.Contains(p, h.dir) {
			continue
		}
		for _, name := range []string{"orchestrator up", "agentrunner run"} {
			if strings.Contains(p, filepath.Join(programs, name)) {
				b.ReportMetric(pss(b, strings.Fields(p)[0]), strings.Fields(name)[0]+"-MiB")
			}
		}
	}
}

// pss is a process's share of memory, in MiB.
func pss(b *testing.B, pid string) float64 {
	b.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		b.Skip(err)
	}
	for line := range strings.Lines(string(data)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "Pss: %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	b.Fatalf("no Pss in %s", data)
	return 0
}

// client is the house's HTTP API as Go calls.
func (h *house) client() *client.Client {
	h.tb.Helper()
	found, err := client.Place{State: filepath.Join(h.dir, "state"), Config: h.dir}.Find()
	if err != nil {
		h.tb.Fatal(err)
	}
	c, err := client.New(found.URL, found.Credential)
	if err != nil {
		h.tb.Fatal(err)
	}
	return c
}
