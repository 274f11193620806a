//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// What pkg/cut reads.
const (
	cutSteps = "CHIFFON_CUT_STEPS="
	cutAt    = "CHIFFON_CUT_AT="
)

// A scenario is the way of one task, and what is done to it.
type scenario struct {
	submission client.Submission
	ms, exit   int
	mode       string
	prepare    func(*scene)              // before it is submitted
	act        func(*scene, api, string) // when its work has begun, or at once with early
	early      bool
	lives      [][]string // what comes before the life that is cut
	ends       []tasklog.Kind
}

type api = *client.Client

// A scene is a scenario that is played: a runner of its own, and an orchestrator.
type scene struct {
	*site
	id           string // of the agent and of its type
	runner       *process
	orchestrator *process // nil where it is shared
}

var (
	good = []tasklog.Kind{tasklog.Succeeded}
	// A crash while work runs that must not be repeated leaves nobody who knows.
	unknown = []tasklog.Kind{tasklog.Succeeded, tasklog.Error}
	stopped = []tasklog.Kind{tasklog.Cancelled, tasklog.Succeeded}
)

func cancelIt(sc *scene, a api, id string) {
	for range 100 {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		_, _, err := a.Cancel(ctx, id, client.Cancellation{Reason: "the scenario says so"})
		stop()
		if err == nil {
			return
		}
		pause(context.Background(), 100*time.Millisecond)
	}
	sc.wrong("task %s cannot be cancelled", id)
}

// runnerScenarios are those whose runner is cut.
func runnerScenarios() map[string]scenario {
	begins := cutAt + "after write ID.json#2" // its journal says that the work begins
	outcome := cutAt + "after write ID.json#3"
	return map[string]scenario{
		"work succeeds":            {submission: client.Submission{WorkType: "often"}, ms: 50, ends: good},
		"work not to be repeated":  {submission: client.Submission{WorkType: "once"}, ms: 50, ends: unknown},
		"work fails":               {submission: client.Submission{WorkType: "often"}, ms: 50, exit: 3, ends: []tasklog.Kind{tasklog.Failed}},
		"work is cancelled":        {submission: client.Submission{WorkType: "often"}, ms: 4000, mode: "far", act: cancelIt, ends: stopped},
		"the runner is restarted":  {submission: client.Submission{WorkType: "often"}, ms: 2500, act: endRunner(syscall.SIGTERM), ends: good},
		"the runner dies":          {submission: client.Submission{WorkType: "often"}, ms: 2500, act: endRunner(syscall.SIGKILL), lives: [][]string{nil}, ends: good},
		"work outlives its runner": {submission: client.Submission{WorkType: "once"}, ms: 2500, act: endRunner(syscall.SIGKILL), lives: [][]string{nil}, ends: unknown},
		"the work was to begin":    {submission: client.Submission{WorkType: "once"}, ms: 50, lives: [][]string{{begins}}, ends: unknown},
		"an outcome was kept":      {submission: client.Submission{WorkType: "once"}, ms: 50, lives: [][]string{{outcome}}, ends: good},
	}
}

func endRunner(s syscall.Signal) func(*scene, api, string) {
	return func(sc *scene, _ api, _ string) { sc.runner.end(s, 0) }
}

// orchestratorScenarios are those whose orchestrator, and the broker in it, is cut.
func orchestratorScenarios() map[string]scenario {
	asleep := func(sc *scene) { sc.runner.signal(syscall.SIGSTOP) }
	awake := func(sc *scene, a api, id string) {
		cancelIt(sc, a, id)
		sc.runner.signal(syscall.SIGCONT)
	}
	late := func(sc *scene, a api, id string) {
		pause(context.Background(), 2*time.Second)
		sc.runner.signal(syscall.SIGCONT)
	}
	return map[string]scenario{
		"work succeeds":          {submission: client.Submission{WorkType: "once"}, ms: 50, ends: good},
		"work is placed":         {submission: client.Submission{WorkType: "often", On: map[string]string{"place": "here"}}, ms: 50, ends: good},
		"running is cancelled":   {submission: client.Submission{WorkType: "often"}, ms: 4000, act: cancelIt, ends: stopped},
		"queued is cancelled":    {submission: client.Submission{WorkType: "often"}, ms: 500, prepare: asleep, act: awake, early: true, ends: stopped},
		"its time in the queue":  {submission: client.Submission{WorkType: "often", QueueTimeout: 1}, ms: 50, prepare: asleep, act: late, early: true, ends: []tasklog.Kind{tasklog.Error, tasklog.Succeeded}},
		"its time while it runs": {submission: client.Submission{WorkType: "often", Hints: &view.Hints{MaxDurationSeconds: 1}}, ms: 4000, ends: []tasklog.Kind{tasklog.Error}},
		"the runner dies":        {submission: client.Submission{WorkType: "often"}, ms: 1500, act: endRunner(syscall.SIGKILL), ends: good},
	}
}

// newScene prepares a runner of its own.
func newScene(t testing.TB, id, brokerURL string, lives [][]string) *scene {
	t.Helper()
	sc := &scene{site: newSite(t), id: id}
	sc.brokerURL = brokerURL
	sc.runner = sc.process("agentrunner", []string{filepath.Join(programs, "cut", "agentrunner"), "run"}, with(
		"AGENTRUNNER_ID="+id, "AGENTRUNNER_TYPE="+id, "AGENTRUNNER_STATE="+filepath.Join(sc.dir, "runner"), "NATS_URL="+brokerURL,
		"AGENTRUNNER_HEARTBEAT=500ms", "AGENTRUNNER_DRAIN=100ms", "AGENTRUNNER_WORK_DIRS="+filepath.Join(sc.dir, "types"),
		"AGENTRUNNER_LABELS=place=here", "AGENTRUNNER_LOG_LEVEL=debug"))
	sc.runner.lives = lives
	sc.site.runners = []*process{sc.runner}
	return sc
}

// newOrchestrator prepares an orchestrator with a broker in it.
func (s *site) newOrchestrator(lives [][]string) *process {
	listen, port, state := "127.0.0.1:"+free(s), free(s), filepath.Join(s.dir, "orchestrator")
	s.brokerURL = "nats://127.0.0.1:" + port
	o := s.process("orchestrator", []string{filepath.Join(programs, "cut", "orchestrator"), "up"}, with(
		"ORCHESTRATOR_STATE="+state, "ORCHESTRATOR_LISTEN="+listen, "ORCHESTRATOR_BROKER_LISTEN=127.0.0.1:"+port,
		"ORCHESTRATOR_LEASE="+lease.String(), "ORCHESTRATOR_LOG_LEVEL=debug"))
	o.lives = lives
	s.orchestrators, s.urls, s.states = []*process{o}, []string{"http://" + listen}, []string{state}
	return o
}

// start keeps processes running until the test ends.
func (s *site) start(ps ...*process) {
	ctx, let := context.WithCancel(context.Background())
	for _, p := range ps {
		s.keepers.Go(func() { p.keep(ctx) })
	}
	s.Cleanup(func() {
		let()
		for _, p := range ps {
			p.signal(syscall.SIGCONT)
			p.end(syscall.SIGKILL, 0)
		}
		s.keepers.Wait()
	})
}

// play runs a scenario to its end, and judges it.
func (sc *scene) play(play scenario) {
	sc.offers()
	if play.prepare != nil {
		play.prepare(sc)
	}
	r := rand.New(rand.NewPCG(1, 1))
	o := play.submission
	mode := play.mode
	if mode == "" {
		mode = "plain"
	}
	o.AgentType, o.RequestID = sc.id, string(message.NewUUID())
	o.Parameters = fmt.Appendf(nil, `{"ms": %d, "exit": %d, "mode": %q}`, play.ms, play.exit, mode)
	id := string(sc.idOf(o.RequestID))
	sc.hand(r, o)
	if play.act != nil {
		if !play.early {
			sc.until("its work begins", func() bool { return sc.witnessed(id) || sc.over(id) })
		}
		play.act(sc, sc.api(0), id)
	}
	sc.until("the task ends", func() bool { return sc.over(id) })
	sc.until("nothing is kept any more", func() bool { return sc.kept() == 0 })
	sc.runner.stop(syscall.SIGTERM)
	sc.judge(id, play.ends)
}

// offers waits until the agent may be given work.
func (sc *scene) offers() {
	sc.until("the agent offers its work", func() bool {
		a := sc.api(0)
		if a == nil {
			return false
		}
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		found, err := a.Agent(ctx, sc.id)
		return err == nil && found.State == "ready" && len(found.WorkTypes) >= 2
	})
}

// until waits for something that happens soon.
func (sc *scene) until(what string, is func() bool) {
	for end := time.Now().Add(patience); !is(); pause(context.Background(), 50*time.Millisecond) {
		if time.Now().After(end) {
			sc.wrong("not after %v: %s", patience, what)
			sc.tell()
			sc.FailNow()
		}
	}
}

// over reports whether a task has ended.
func (sc *scene) over(id string) bool {
	a := sc.api(0)
	if a == nil {
		return false
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	task, err := a.Task(ctx, id)
	return err == nil && view.Ended(task.State)
}

func (sc *scene) witnessed(id string) bool {
	text, err := os.ReadFile(sc.witness)
	return err == nil && strings.Contains(string(text), id)
}

// kept is how many attempts the spool holds.
func (sc *scene) kept() int {
	found, _ := filepath.Glob(filepath.Join(sc.dir, "runner", "attempts", "*-*"))
	return len(found)
}

// judge holds the task's log against the witness.
func (sc *scene) judge(id string, ends []tasklog.Kind) {
	b := sc.newBook()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	c := sc.connect(ctx)
	log, err := c.Task(ctx, subject.TaskID(id))
	for ; err != nil && ctx.Err() == nil; pause(ctx, 50*time.Millisecond) { // its cut may come now
		log, err = c.Task(ctx, subject.TaskID(id))
	}
	for _, e := range log {
		b.entry(e)
	}
	if err := b.witness(); err != nil {
		sc.wrong("%v", err)
	}
	st := b.story(subject.TaskID(id))
	b.whole(st)
	if !slices.Contains(ends, st.fold.State.End) {
		b.fail(st, "it ended with %s, want one of %v", st.fold.State.End, ends)
	}
	if left, _ := os.ReadDir(filepath.Join(sc.dir, "runner", "work")); len(left) > 0 {
		b.fail(st, "%d directories of its work are left", len(left))
	}
	sc.tell()
}

// tell reports what was wrong.
func (sc *scene) tell() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	for _, text := range sc.wrongs {
		sc.Errorf("%s", text)
	}
	if len(sc.wrongs) == 0 {
		return
	}
	sc.Errorf("what happened:\n%s", strings.Join(sc.notes, "\n"))
	for _, p := range []*process{sc.runner, sc.orchestrator} {
		if p != nil {
			if text, err := os.ReadFile(p.log); err == nil {
				sc.Logf("%s:\n%s", p.name, text)
			}
		}
	}
}

// steps reads what a run has written, with the agent's own name taken out.
func steps(t testing.TB, path, id string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(text)) {
		name = strings.ReplaceAll(strings.TrimSpace(name), id, "AGENT")
		if !periodic(name) {
			all = append(all, name)
		}
	}
	return all
}

// periodic reports whether a step comes again and again whatever happens; its first two times are enough.
func periodic(name string) bool {
	_, count, _ := strings.Cut(name, "#")
	often := strings.Contains(name, "heartbeat") || strings.Contains(name, "put leader")
	return often && len(count) > 0 && count != "1" && count != "2"
}

// chosen is what of the cuts is tried: all of them with CUTS=all, else so many by chance.
func chosen(t testing.TB, all []cutting) []cutting {
	t.Helper()
	if os.Getenv("CUTS") == "all" {
		return all
	}
	seed := fromEnv("SEED", rand.Uint64())
	n := int(fromEnv("CUTS", 40))
	t.Logf("SEED=%d: %d of %d cuts (CUTS=all tries them all)", seed, min(n, len(all)), len(all))
	rand.New(rand.NewPCG(seed, 4)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// A cutting is one crash: in which scenario, at which step, before which.
type cutting struct{ scenario, at, next string }

func (c cutting) name() string { return c.scenario + "/" + c.at + " | " + c.next }

// cuttings lists a crash at each step that the scenarios have.
func cuttings(recorded map[string][]string) (all []cutting) {
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		for i, at := range recorded[name] {
			next := "the end"
			if i+1 < len(recorded[name]) {
				next = recorded[name][i+1]
			}
			all = append(all, cutting{name, at, next})
		}
	}
	return all
}

// try plays all scenarios once whole, then once for each cut that is chosen.
func try(t *testing.T, all map[string]scenario, play func(t *testing.T, id string, s scenario, life []string) *scene) {
	var mu sync.Mutex
	recorded := map[string][]string{}
	t.Run("whole", func(t *testing.T) {
		for i, name := range slices.Sorted(maps.Keys(all)) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				path, id := filepath.Join(t.TempDir(), "steps"), fmt.Sprintf("whole-%d", i)
				play(t, id, all[name], []string{cutSteps + path})
				mu.Lock()
				defer mu.Unlock()
				recorded[name] = steps(t, path, id)
			})
		}
	})
	if t.Failed() {
		return
	}
	list, missed := cuttings(recorded), 0
	list = chosen(t, list)
	t.Run("cut", func(t *testing.T) {
		for i, c := range list {
			t.Run(c.name(), func(t *testing.T) {
				t.Parallel()
				id := fmt.Sprintf("cut-%d", i)
				sc := play(t, id, all[c.scenario], []string{cutAt + strings.ReplaceAll(c.at, "AGENT", id)})
				want := 1 + len(slices.DeleteFunc(slices.Clone(all[c.scenario].lives), func(l []string) bool { return l == nil }))
				mu.Lock()
				defer mu.Unlock()
				if sc.figures["cuts"] < want {
					missed++
					t.Logf("it did not come to this step")
				}
			})
		}
	})
	t.Logf("%d of %d cuts were not reached", missed, len(list))
	if missed > len(list)/5 {
		t.Errorf("%d of %d cuts were not reached", missed, len(list))
	}
}

// A runner that crashes between any two of its side effects loses no task, does none twice, and ends each as it went.
func TestRunnerCuts(t *testing.T) {
	shared := newSite(t)
	o := shared.newOrchestrator(nil)
	shared.start(o)
	try(t, runnerScenarios(), func(t *testing.T, id string, s scenario, life []string) *scene {
		sc := newScene(t, id, shared.brokerURL, append(slices.Clone(s.lives), life))
		sc.orchestrators, sc.urls, sc.states = shared.orchestrators, shared.urls, shared.states
		sc.start(sc.runner)
		sc.play(s)
		return sc
	})
}

// Likewise an orchestrator, and the broker in it.
func TestOrchestratorCuts(t *testing.T) {
	try(t, orchestratorScenarios(), func(t *testing.T, id string, s scenario, life []string) *scene {
		own := newSite(t)
		o := own.newOrchestrator([][]string{life})
		sc := newScene(t, id, own.brokerURL, nil)
		sc.orchestrators, sc.urls, sc.states, sc.orchestrator = own.orchestrators, own.urls, own.states, o
		o.site = sc.site
		sc.start(o, sc.runner)
		sc.play(s)
		o.stop(syscall.SIGTERM)
		return sc
	})
}
