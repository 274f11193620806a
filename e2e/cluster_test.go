//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A cluster is three nats-server processes, built from the module that is embedded otherwise.
type cluster struct {
	tb    testing.TB
	dir   string
	ports [3]int
	nodes [3]*exec.Cmd
}

func newCluster(tb testing.TB) *cluster {
	tb.Helper()
	c := &cluster{tb: tb, dir: tb.TempDir()}
	build := exec.Command("go", "build", "-o", filepath.Join(c.dir, "nats-server"), "github.com/nats-io/nats-server/v2")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("build nats-server: %v\n%s", err, out)
	}
	ports := freePorts(tb, 6)
	var routes []string
	for _, p := range ports[3:] {
		routes = append(routes, fmt.Sprintf("%q", fmt.Sprintf("nats://127.0.0.1:%d", p)))
	}
	for i := range c.nodes {
		c.ports[i] = ports[i]
		config := fmt.Sprintf("listen: \"127.0.0.1:%d\"\nserver_name: n%d\nmax_payload: 4MB\njetstream { store_dir: %q }\n"+
			"cluster { name: c, listen: \"127.0.0.1:%d\", routes: [%s] }\n", ports[i], i, filepath.Join(c.dir, fmt.Sprint("store", i)), ports[3+i], strings.Join(routes, ", "))
		if err := os.WriteFile(c.config(i), []byte(config), 0o600); err != nil {
			tb.Fatal(err)
		}
		c.begin(i)
	}
	tb.Cleanup(func() {
		for i := range c.nodes {
			c.kill(i)
		}
	})
	return c
}

func (c *cluster) config(i int) string { return filepath.Join(c.dir, fmt.Sprintf("n%d.conf", i)) }

func (c *cluster) url() string {
	var all []string
	for _, p := range c.ports {
		all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", p))
	}
	return strings.Join(all, ",")
}

func (c *cluster) begin(i int) {
	c.tb.Helper()
	log, err := os.OpenFile(filepath.Join(c.dir, fmt.Sprintf("n%d.log", i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer log.Close()
	c.nodes[i] = exec.Command(filepath.Join(c.dir, "nats-server"), "-c", c.config(i))
	c.nodes[i].Stderr = log
	if err := c.nodes[i].Start(); err != nil {
		c.tb.Fatal(err)
	}
}

// kill is kill -9.
func (c *cluster) kill(i int) {
	_ = c.nodes[i].Process.Kill() // it may be gone
	_ = c.nodes[i].Wait()
}

func freePorts(tb testing.TB, n int) (ports []int) {
	tb.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// A load is tasks that are handed in one after the other, each again with the same request_id until it is accepted. What
// they run leaves a line with its own name in a file.
type load struct {
	tb      testing.TB
	c       *client.Client
	witness string

	mu       sync.Mutex
	accepted map[string]string // name by task id
	when     []time.Time

	followers sync.WaitGroup
	longest   time.Duration // from a task's end to its end mark
	gaps      int           // statuses that they were told are missing
}

// tooLate is more than any election takes and what comes after it.
const tooLate = 45 * time.Second

// follow watches a task to its end mark, as those do who wait for one.
func (l *load) follow(id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.tb.Context()), 2*patience)
	defer cancel()
	gaps := 0
	for e, err := range l.c.Events(ctx, id, client.EventQuery{Follow: true}) {
		if err != nil {
			l.tb.Errorf("who follows task %s sees no end: %v", id, err)
			return
		}
		gaps += e.Missing
		if task, ok := e.Ended(); ok {
			l.mu.Lock()
			l.longest, l.gaps = max(l.longest, time.Since(*task.EndedAt)), l.gaps+gaps
			l.mu.Unlock()
		}
	}
}

func (l *load) run(ctx context.Context, worker int) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("w%d-%d", worker, n)
		s := commandOf(fmt.Sprintf("echo %s >> %s", name, l.witness))
		s.RequestID = string(message.NewUUID())
		for {
			ask, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			task, _, err := l.c.Submit(ask, s)
			cancel()
			if err == nil {
				l.mu.Lock()
				l.accepted[task.TaskID] = name
				l.when = append(l.when, time.Now())
				l.mu.Unlock()
				l.followers.Go(func() { l.follow(task.TaskID) })
				break
			}
			if l.tb.Context().Err() != nil {
				return
			}
			<-time.After(20 * time.Millisecond)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // no more than the runners do
		}
	}
}

func (l *load) count() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.accepted) }

// Each node of three is killed in turn under load, the task log's leader first, and comes back after a while: nothing
// that was accepted is lost, every task has one end and has run once.
func TestClusterNodeDies(t *testing.T) {
	nodes := newCluster(t)
	h := &house{tb: t, dir: t.TempDir()}
	nc, err := nats.Connect(nodes.url(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	h.until("the cluster takes streams", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "PROBE", Replicas: 3})
		return err == nil && js.DeleteStream(ctx, "PROBE") == nil
	})
	h.up("NATS_URL="+nodes.url(), "ORCHESTRATOR_REPLICAS=3")
	for _, id := range []string{"one", "two"} {
		h.runner(id, "AGENTRUNNER_SLOTS=3", "AGENTRUNNER_ALLOW_COMMANDS=sh *", "AGENTRUNNER_LOG_LEVEL=warn")
	}
	l := &load{tb: t, c: h.client(), witness: filepath.Join(h.dir, "witness"), accepted: map[string]string{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for w := range 3 {
		workers.Go(func() { l.run(ctx, w) })
	}
	h.until("there is a load", func() bool { return strings.Count(read(l.witness), "\n") > 20 })

	var kills []time.Time
	victim := -1
	for round := range repeats(t, 3) {
		info := whole(h, js)
		if round%2 == 0 || victim < 0 {
			victim = int(info.Cluster.Leader[1] - '0')
		} else {
			victim = (victim + 1) % 3
		}
		t.Logf("kill -9 of n%d, the leader is %s", victim, info.Cluster.Leader)
		nodes.kill(victim)
		kills = append(kills, time.Now())
		before, done := l.count(), strings.Count(read(l.witness), "\n")
		h.until("the load goes on", func() bool { return l.count() > before+10 && strings.Count(read(l.witness), "\n") > done+10 })
		nodes.begin(victim)
	}
	whole(h, js)
	stop()
	workers.Wait()
	l.followers.Wait()
	l.check(h, nodes.url(), kills)
}

// whole waits until every copy of the task log is as new as its leader.
func whole(h *house, js jetstream.JetStream) (info *jetstream.StreamInfo) {
	h.tb.Helper()
	h.until("the cluster is whole", func() bool {
		ctx, cancel := context.WithTimeout(h.tb.Context(), 2*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, subject.TasksStream)
		if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
			return false
		}
		info = s.CachedInfo()
		return len(info.Cluster.Replicas) == 2 && !slices.ContainsFunc(info.Cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
	})
	return info
}

// check holds every task that was accepted against its log and the witness, and tells the longest pauses.
func (l *load) check(h *house, url string, kills []time.Time) {
	h.tb.Helper()
	c, err := broker.Connect(broker.Config{URL: url, Name: "test"})
	if err != nil {
		h.tb.Fatal(err)
	}
	defer c.Close()
	var ends []time.Time
	for id := range l.accepted {
		var task client.Task
		h.until("task "+id+" has ended", func() bool {
			task, err = l.c.Task(h.tb.Context(), id)
			return err == nil && task.EndedAt != nil
		})
		if task.State != view.Succeeded {
			h.tb.Errorf("task %s is %s", id, task.State)
			continue
		}
		ends = append(ends, *task.EndedAt)
		log, err := c.Task(h.tb.Context(), subject.TaskID(id))
		if err != nil {
			h.tb.Fatal(err)
		}
		valid := 0
		for _, e := range log {
			if e.Kind.End() {
				valid++
			}
		}
		if s := tasklog.Fold(log); s.Void > 0 || valid != 1 || s.Attempt != 1 {
			h.tb.Errorf("task %s: %d ends, %d void entries, %d attempts", id, valid, s.Void, s.Attempt)
		}
	}
	asked(h, c)
	ran := map[string]int{}
	for line := range bytes.Lines([]byte(read(l.witness))) {
		ran[strings.TrimSpace(string(line))]++
	}
	for id, name := range l.accepted {
		if ran[name] != 1 {
			h.tb.Errorf("task %s ran %d times", id, ran[name])
		}
	}
	if len(ran) != len(l.accepted) {
		h.tb.Errorf("%d have run, %d were accepted", len(ran), len(l.accepted))
	}
	h.tb.Logf("%d tasks, each with one end and run once, over %d kills", len(l.accepted), len(kills))
	h.tb.Logf("longest time from an end to the end mark of who follows the task %v", l.longest.Round(10*time.Millisecond))
	if l.longest > tooLate {
		h.tb.Errorf("that is more than %v", tooLate)
	}
	if l.gaps > 0 {
		h.tb.Errorf("followers were told that %d statuses are missing, which are stored", l.gaps)
	}
	for i, at := range kills {
		h.tb.Logf("kill %d: longest time without an accepted submission %v, without a recorded end %v", i+1, gap(l.when, at), gap(ends, at))
	}
}

// asked checks that a bucket of a cluster, which is read from its leader, tells what was written last.
func asked(h *house, c *broker.Client) {
	h.tb.Helper()
	kv, err := c.Bucket(h.tb.Context(), broker.StateBucket)
	if err != nil {
		h.tb.Fatal(err)
	}
	for n := range 50 {
		revision, err := kv.Put(h.tb.Context(), "probe", []byte{byte(n)})
		if err != nil {
			h.tb.Fatal(err)
		}
		if e, err := kv.Get(h.tb.Context(), "probe"); err != nil || e.Revision() != revision || e.Value()[0] != byte(n) || e.Key() != "probe" {
			h.tb.Fatalf("written at %d, read %+v, %v", revision, e, err)
		}
	}
	if err := kv.Delete(h.tb.Context(), "probe"); err != nil {
		h.tb.Fatal(err)
	}
	if _, err := kv.Get(h.tb.Context(), "probe"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		h.tb.Errorf("a key that was removed: %v", err)
	}
}

// gap is the longest time between two moments in the ten seconds after one.
func gap(moments []time.Time, after time.Time) (longest time.Duration) {
	moments = slices.SortedFunc(slices.Values(moments), time.Time.Compare)
	for i := 1; i < len(moments); i++ {
		if moments[i].After(after) && moments[i-1].Before(after.Add(10*time.Second)) {
			longest = max(longest, moments[i].Sub(moments[i-1]))
		}
	}
	return longest.Round(10 * time.Millisecond)
}
