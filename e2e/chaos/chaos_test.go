//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// fromEnv is a number that whoever runs the suite may set.
func fromEnv(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

func faultsWanted() int { return int(fromEnv("FAULTS", 300)) }

// raced reports whether the programs are built with the race detector.
func raced() bool { return os.Getenv("RACE") != "" && runtime.GOOS == "linux" }

// settleTime is how long it may take, once nothing breaks any more, until every task has ended.
const settleTime = 3 * time.Minute

// Whatever is killed, stopped, cut off or full: each accepted task gets exactly one end, and nothing runs that should
// not.
func TestFaults(t *testing.T) { torture(t, false, faultsWanted()) }

// Likewise where the first orchestrator has the broker in it, with a quarter of the faults.
func TestFaultsEmbedded(t *testing.T) { torture(t, true, faultsWanted()/4) }

func torture(t *testing.T, embedded bool, faults int) {
	seed := fromEnv("SEED", rand.Uint64())
	t.Logf("SEED=%d FAULTS=%d", seed, faultsWanted())
	s := open(t, embedded)
	s.ready()

	ctx, stop := context.WithCancel(context.Background())
	judging, endJudging := context.WithCancel(context.Background())
	defer endJudging()
	var users, judge sync.WaitGroup
	for i := range clients {
		users.Go(func() { s.submit(ctx, seed+uint64(i)) })
	}
	users.Go(func() { s.cancel(ctx, seed) })
	users.Go(func() { s.operate(ctx, seed) })
	var watchers sync.WaitGroup
	for i := range s.urls {
		watchers.Go(func() { s.watch(judging, i) })
	}
	b := s.newBook()
	s.stranger = s.newStranger()
	b.hear = s.stranger.remember
	c := s.connect(t.Context())
	judge.Go(func() { b.judge(judging, c) })

	s.torment(seed, faults)
	tormented := time.Since(s.began)
	s.note("no more faults")
	stop()
	users.Wait()
	settled := s.settle()
	endJudging()
	watchers.Wait()
	judge.Wait()
	b.look(context.Background(), c, time.Now())
	for _, st := range b.open {
		if _, mine := s.accepted[string(st.id)]; mine && st.end.IsZero() && s.fine() {
			b.fail(st, "it has no end")
		}
	}
	for id := range s.accepted {
		if b.stories[subject.TaskID(id)] == nil {
			s.wrong("task %s was accepted, and is lost", id)
		}
	}
	if s.fine() {
		b.histories(b.judged[max(0, len(b.judged)-200):])
	}
	b.lateOnes(c)
	settledWell := s.fine()
	s.endAll(settledWell)
	if err := b.witness(); err != nil {
		s.wrong("%v", err)
	}
	s.report(seed, tormented, settled, b)
}

// ready waits until both orchestrators know all agents.
func (s *site) ready() {
	s.Helper()
	for end := time.Now().Add(patience); ; pause(context.Background(), 50*time.Millisecond) {
		missing := 0
		for i := range s.urls {
			known := 0
			if api := s.api(i); api != nil {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				agents, err := api.Agents(ctx)
				cancel()
				for _, a := range agents.Agents {
					if err == nil && a.State == "ready" && len(a.WorkTypes) >= 2 {
						known++
					}
				}
			}
			missing += runners - known
		}
		if missing == 0 {
			return
		}
		if time.Now().After(end) {
			s.artifacts()
			s.Fatalf("not ready after %v", patience)
		}
	}
}

// settle waits until every accepted task has ended, and says how long that took.
func (s *site) settle() time.Duration {
	began := time.Now()
	for s.unsettledNow() > 0 && time.Since(began) < settleTime && s.fine() {
		pause(context.Background(), 100*time.Millisecond)
	}
	return time.Since(began)
}

func (s *site) fine() bool {
	select {
	case <-s.alarm:
		return false
	default:
		return true
	}
}

func (s *site) unsettled(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.openTasks = n
}

func (s *site) unsettledNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openTasks
}

func (s *site) idOf(request string) subject.TaskID {
	return tasklog.TaskID("admin", message.UUID(request))
}

// report prints the figures, and what was wrong with all that helps to find out why.
func (s *site) report(seed uint64, tormented, settled time.Duration, b *book) {
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := 0
	var rows strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.figures)) {
		fmt.Fprintf(&rows, "| %s | %d |\n", name, s.figures[name])
		if strings.HasPrefix(name, "fault: ") {
			faults += s.figures[name]
		}
	}
	s.Logf("figures of SEED=%d\n| what | how many |\n| --- | --- |\n| faults | %d in %s (%.1f/s) |\n| tasks ended | %d of %d accepted |\n| executions | %d |\n"+
		"| late results | %d |\n| executions at the same time, excused | %d |\n| longest time from submission to end | %s |\n| longest that a view showed a task as open after its end | %s |\n| time to settle after the last fault | %s |\n%s",
		seed, faults, tormented.Round(time.Second), float64(faults)/tormented.Seconds(), b.ended, len(s.accepted), b.executions,
		b.late, b.overlaps, b.longest.Round(100*time.Millisecond), s.lag.Round(100*time.Millisecond), settled.Round(100*time.Millisecond), rows.String())
	if len(s.wrongs) == 0 && !s.Failed() {
		return
	}
	dir := s.artifacts()
	s.write(filepath.Join(dir, "faults.txt"), strings.Join(s.notes, "\n")+"\n")
	for _, text := range s.wrongs[:min(len(s.wrongs), 20)] {
		s.Errorf("%s", text)
	}
	s.Errorf("%d things are wrong; the last faults:\n%s\nagain: make chaos SEED=%d FAULTS=%d\nlogs: %s",
		len(s.wrongs), strings.Join(s.notes[max(0, len(s.notes)-40):], "\n"), seed, faultsWanted(), dir)
}

// artifacts keeps the logs and what the witness saw, and says where.
func (s *site) artifacts() (dir string) {
	dir = s.ArtifactDir()
	names, _ := filepath.Glob(filepath.Join(s.dir, "*.log"))
	for _, name := range append(names, s.witness) {
		if err := copyFile(filepath.Join(dir, filepath.Base(name)), name); err != nil {
			s.Logf("keep %s: %v", name, err)
		}
	}
	return dir
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	return err
}
