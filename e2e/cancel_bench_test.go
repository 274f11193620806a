package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"chiffon/orchestrator/client"
)

// BenchmarkCancel is how long it takes from the start of "orchestrator task cancel ID" until the last process of the work
// is dead: a shell, a child of its own, and one that has left its session. Beside it stands what such a call costs that
// only asks for a task (look), and the ratio of the two. Run it with -benchtime 200x.
func BenchmarkCancel(b *testing.B) {
	h := open(b)
	h.runner("bench", "AGENTRUNNER_ALLOW_COMMANDS=*", "AGENTRUNNER_LOG_LEVEL=warn")
	c := h.client()
	var took, look []time.Duration
	for b.Loop() {
		b.StopTimer()
		id, tree := h.tree(b, c)
		began := time.Now()
		if code, out := code(b, h.cli("task", "show", id)); code != 0 {
			b.Fatal(out)
		}
		look = append(look, time.Since(began))
		b.StartTimer()
		began = time.Now()
		call := h.cli("task", "cancel", id)
		if err := call.Start(); err != nil {
			b.Fatal(err)
		}
		tree.dead(b)
		took = append(took, time.Since(began))
		if err := call.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if t, err := c.Wait(b.Context(), id); err != nil || t.State != "cancelled" {
			b.Fatalf("task %s is %s: %v", id, t.State, err)
		}
		b.StartTimer()
	}
	slices.Sort(took)
	slices.Sort(look)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(ms(look[len(look)/2]), "look-p50-ms")
	b.ReportMetric(ms(took[len(took)/2])/ms(look[len(look)/2]), "ratio")
}

// A tree is a task's processes, each held by a descriptor, so that no other can be taken for it.
type tree []int

// tree starts a task of three processes, and returns when all of them run.
func (h *house) tree(tb testing.TB, c *client.Client) (id string, pids tree) {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "pids")
	script := `setsid sleep 600 & a=$!; sleep 600 & echo $$ $a $! > "$0.new"; mv "$0.new" "$0"; wait`
	t, _, err := c.Submit(tb.Context(), client.Submission{AgentType: "infra", WorkType: "run_command",
		Parameters: fmt.Appendf(nil, `{"argv": ["sh", "-c", %q, %q]}`, script, file)})
	if err != nil {
		tb.Fatal(err)
	}
	var words []string
	h.until("the work has begun", func() bool {
		data, err := os.ReadFile(file)
		words = strings.Fields(string(data))
		return err == nil
	})
	for _, word := range words {
		pid, err := strconv.Atoi(word)
		if err != nil {
			tb.Fatal(err)
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			tb.Fatal(err)
		}
		pids = append(pids, fd)
	}
	if len(pids) != 3 {
		tb.Fatalf("processes %q", words)
	}
	return t.TaskID, pids
}

// dead returns when every process is.
func (t tree) dead(tb testing.TB) {
	tb.Helper()
	for _, fd := range t {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n == 0 {
				tb.Fatalf("a process of the work lives %v after the cancel: %v", patience, err)
			}
			break
		}
		_ = unix.Close(fd) // it was only waited on
	}
}
