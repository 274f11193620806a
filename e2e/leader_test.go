//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
)

// A town is a broker of its own, with several houses on it.
type town struct {
	testing.TB
	url string
	kv  jetstream.KeyValue // where the leader says that it leads
}

func newTown(tb testing.TB) *town {
	tb.Helper()
	server, c := natstest.Start(tb, broker.ServerConfig{Dir: tb.TempDir(), Listen: "127.0.0.1:0", Relaxed: true})
	kv, err := c.Bucket(tb.Context(), broker.StateBucket)
	if err != nil {
		tb.Fatal(err)
	}
	return &town{TB: tb, url: server.URL(), kv: kv}
}

// house starts one more orchestrator, as a process that may be killed.
func (t *town) house(env ...string) (*house, *exec.Cmd) {
	t.Helper()
	h := &house{tb: t, dir: t.TempDir(), broker: t.url}
	up := h.command("orchestrator", append([]string{"ORCHESTRATOR_LISTEN=127.0.0.1:0", "NATS_URL=" + t.url}, env...), "up")
	victim(t, up)
	h.until("the orchestrator is ready", func() bool { return h.cli("task", "list").Run() == nil })
	return h, up
}

// victim starts a program that may be killed; it is, at the end of the test.
func victim(tb testing.TB, cmd *exec.Cmd) {
	tb.Helper()
	cmd.Stderr = tb.Output()
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { kill9(cmd) })
}

func kill9(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may be gone
	_ = cmd.Wait()
}

// leader is the name of who has said last that it leads.
func (t *town) leader() string {
	var said struct {
		V    int    `json:"v"`
		Name string `json:"name"`
	}
	e, err := t.kv.Get(context.Background(), "leader")
	if err != nil || json.Unmarshal(e.Value(), &said) != nil || said.V != 1 {
		return ""
	}
	return said.Name
}

// moves waits until another leads, and tells how long that took.
func (t *town) moves(h *house, from string) time.Duration {
	t.Helper()
	began := time.Now()
	h.until("another leads", func() bool { now := t.leader(); return now != "" && now != from })
	return time.Since(began)
}

// placed is a task that only a leader can have begun: it has to be put to an agent.
func (h *house) placed(c *client.Client, script string) string {
	h.tb.Helper()
	s := commandOf(script)
	s.On = map[string]string{"site": "attic"}
	task, _, err := c.Submit(h.tb.Context(), s)
	if err != nil {
		h.tb.Fatal(err)
	}
	return task.TaskID
}

func (h *house) succeeds(c *client.Client, ids ...string) {
	h.tb.Helper()
	ctx, cancel := context.WithTimeout(h.tb.Context(), patience)
	defer cancel()
	for _, id := range ids {
		task, err := c.Wait(ctx, id)
		if err != nil || task.State != view.Succeeded || task.Attempt != 1 {
			h.tb.Fatalf("task %s is %s at attempt %d: %v, want it succeeded at its first", id, task.State, task.Attempt, err)
		}
	}
}

// leaderMoves is what is promised after the leader's death.
const leaderMoves = 10 * time.Second

// Two orchestrators on one broker serve the same tasks. The leader is killed, and the other goes on; then that one is
// stopped for longer than it may be quiet, and wakes beside the next leader: nothing is lost, nothing runs twice.
func TestLeaderDiesAndSleeps(t *testing.T) {
	town := newTown(t)
	one, first := town.house()
	two, second := town.house()
	witness := filepath.Join(one.dir, "witness")
	script := func(word string) string { return "echo " + word + " >>" + witness }
	one.runner("attic", "AGENTRUNNER_ALLOW_COMMANDS=sh *", "AGENTRUNNER_LABELS=site=attic", "AGENTRUNNER_SLOTS=2")
	a, b := one.client(), two.client()
	ids := []string{one.placed(a, script("1")), two.placed(b, script("2"))}
	one.succeeds(a, ids[1], ids[0])
	two.succeeds(b, ids...) // each shows the tasks of the other

	leads := town.leader()
	kill9(first)
	third := two.placed(b, script("3")) // accepted although nobody leads
	took := town.moves(two, leads)
	t.Logf("leadership moved within %v of a kill -9", took)
	if took > 10*leaderMoves {
		t.Errorf("leadership moved after %v, promised are %v", took, leaderMoves)
	}
	two.succeeds(b, third)

	three, _ := town.house()
	c := three.client()
	leads = town.leader()
	if err := second.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var more []string
	for i := range 5 {
		more = append(more, three.placed(c, script(fmt.Sprint(4+i))))
	}
	t.Logf("leadership moved within %v of a stop", town.moves(three, leads))
	if err := second.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		more = append(more, two.placed(b, script(fmt.Sprint(9+i))))
	}
	three.succeeds(c, more...)
	two.succeeds(b, more...)
	said, err := os.ReadFile(witness)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(said))
	count := map[string]int{}
	for _, l := range lines {
		count[l]++
	}
	if len(count) != 13 || len(lines) != 13 {
		t.Errorf("executed %v, want each of 13 once", lines)
	}
}

// BenchmarkRunsAgain measures how long work that may be repeated stands still when its runner is killed with -9: one
// that comes back at once, and one that does not while another is there. Run it with -benchtime 3x.
func BenchmarkRunsAgain(b *testing.B) {
	for name, back := range map[string]bool{"back": true, "away": false} {
		b.Run(name, func(b *testing.B) {
			lease := "2s"
			if text := os.Getenv("CHIFFON_LEASE"); text != "" {
				lease = text
			}
			h := open(b, "ORCHESTRATOR_LEASE="+lease)
			work := filepath.Join(h.dir, "work.d")
			if err := os.MkdirAll(work, 0o700); err != nil {
				b.Fatal(err)
			}
			text := "name: nap\ndescription: Sleeps.\nattempts: 4\nparameters: {type: object}\ncommand: [sleep, '600']\n"
			if err := os.WriteFile(filepath.Join(work, "nap.yaml"), []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
			run := func(id string) *exec.Cmd {
				cmd := h.command("agentrunner", []string{
					"NATS_URL=" + h.broker, "AGENTRUNNER_ID=" + id, "AGENTRUNNER_STATE=" + filepath.Join(h.dir, "runner-"+id),
					"AGENTRUNNER_WORK_DIRS=" + work, "AGENTRUNNER_LOG_LEVEL=warn",
				}, "run")
				victim(b, cmd)
				return cmd
			}
			c := h.client()
			running := func(id string, attempt int) (task client.Task) {
				h.wait(3*time.Minute, fmt.Sprintf("attempt %d runs", attempt), func() bool {
					var err error
					task, err = c.Task(b.Context(), id)
					return err == nil && task.State == view.Running && task.Attempt == attempt
				})
				return task
			}
			n, still := 0, time.Duration(0)
			for b.Loop() {
				n++
				holder := run(fmt.Sprint("one-", n))
				task, _, err := c.Submit(b.Context(), client.Submission{AgentType: "infra", WorkType: "nap", Parameters: []byte("{}")})
				if err != nil {
					b.Fatal(err)
				}
				running(task.TaskID, 1)
				other := fmt.Sprint("one-", n)
				var next *exec.Cmd
				if !back {
					other = fmt.Sprint("two-", n)
					next = run(other)
					h.until("the other is ready", func() bool { return h.cli("agent", "show", other).Run() == nil })
				}
				began := time.Now()
				kill9(holder)
				if back {
					next = run(other)
				}
				if task := running(task.TaskID, 2); task.AgentID != other {
					b.Fatalf("it runs on %s", task.AgentID)
				}
				still += time.Since(began)
				if _, _, err := c.Cancel(b.Context(), task.TaskID, client.Cancellation{Signal: "KILL"}); err != nil {
					b.Fatal(err)
				}
				if _, err := c.Wait(b.Context(), task.TaskID); err != nil {
					b.Fatal(err)
				}
				kill9(next)
			}
			b.ReportMetric(still.Seconds()/float64(n), "s-standing-still")
		})
	}
}
