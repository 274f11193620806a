//go:build chaos

// Package chaos breaks everything that can break under both programs, while they run as processes, and holds what they
// then say and do against a witness that they know nothing of. docs/reliability.md has the table of faults and how to
// run it.
package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/pkg/subject"
	"chiffon/pkg/token"
)

// programs is the folder with the programs under test, the broker and the witness.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if role := os.Getenv(relayTo); role != "" {
		relay("127.0.0.1:"+os.Getenv(relayPort), role)
		return 1
	}
	dir, err := os.MkdirTemp("", "chiffon-chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build makes the programs. The race detector looks on in short runs, where there is a C compiler for it.
func build(dir string) error {
	ours := []string{"chiffon/orchestrator", "chiffon/agentrunner"}
	if raced() {
		ours = append([]string{"-race"}, ours...)
	}
	for _, what := range [][]string{ours, {"-tags=cut", "chiffon/orchestrator", "chiffon/agentrunner"}, {"github.com/nats-io/nats-server/v2", "./testdata/witness"}} {
		to := dir + "/"
		if what[0] == "-tags=cut" {
			to += "cut/"
		}
		cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-o", to}, what...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if what[0] == "-race" {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", strings.Join(what, " "), err, out)
		}
	}
	return nil
}

// Settings of the installation: everything is short, so that much happens.
const (
	lease   = 2 * time.Second
	slots   = 4
	runners = 3
	keep    = 4 * time.Minute // of ended tasks: their logs are judged long before
)

// A site is one installation, and what the suite knows of it.
type site struct {
	testing.TB
	dir     string
	witness string
	began   time.Time

	broker        *process
	orchestrators []*process
	runners       []*process
	relays        []*process
	stranger      *stranger
	urls, states  []string // of the orchestrators
	brokerURL     string
	links         []*link // one for each runner, nil where there can be none
	group         string  // control group of all processes; "" where there can be none
	disk          string  // of the last runner, a small one; "" where there is none

	keepers sync.WaitGroup
	let     context.CancelFunc // ends the keepers

	mu       sync.Mutex
	notes    []string // what happened, in order
	wrongs   []string
	alarm    chan struct{} // closed with the first wrong
	excuses  []excuse
	figures  map[string]int
	accepted map[string]*submission // by task id
	tried    map[subject.TaskID]bool
	glances  map[subject.TaskID]glance
	recent   []string // task ids, latest last

	openTasks int
	lag       time.Duration // the longest that a view showed what was over
}

// An excuse is a time in which an agent's work could not be ended by anybody.
type excuse struct {
	agent    string
	from, to time.Time // to is zero while it lasts
}

// note writes down what happened.
func (s *site) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, clock(time.Now())+" "+fmt.Sprintf(format, args...))
}

// wrong writes down what must not be.
func (s *site) wrong(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.note("WRONG: %s", text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrongs = append(s.wrongs, text)
	if len(s.wrongs) == 1 {
		close(s.alarm)
	}
}

func (s *site) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.figures[what]++
}

const often = `
description: May be repeated.
attempts: 4
` + common

const once = `
description: Must not be repeated.
attempts: 1
` + common

const common = `
stop: {grace_seconds: 1}
parameters:
  type: object
  required: [ms, exit, mode]
  properties:
    ms: {type: integer}
    exit: {type: integer}
    mode: {type: string}
command: [%s, %s, {param: ms}, {param: exit}, {param: mode}]
`

// newSite is an installation in which nothing runs yet.
func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{
		TB: t, dir: t.TempDir(), began: time.Now(), alarm: make(chan struct{}), figures: map[string]int{}, accepted: map[string]*submission{},
		tried: map[subject.TaskID]bool{}, glances: map[subject.TaskID]glance{},
	}
	s.witness = filepath.Join(s.dir, "witness")
	s.write(s.witness, "")
	for name, text := range map[string]string{"often": often, "once": once} {
		s.write(filepath.Join(s.dir, "types", name+".yaml"), fmt.Sprintf(text, filepath.Join(programs, "witness"), s.witness))
	}
	return s
}

// open starts an installation: a broker, in the first orchestrator or on its own, two orchestrators, three runners.
func open(t testing.TB, embedded bool) *site {
	t.Helper()
	s := newSite(t)
	s.group = s.newGroup()
	port := free(t)
	s.brokerURL = "nats://127.0.0.1:" + port
	for i := range 2 {
		s.upAs(i, embedded && i == 0)
	}
	if s.broker = s.orchestrators[0]; !embedded {
		s.broker = s.ownBroker(port)
	}
	for i := range runners {
		s.runner(i)
	}
	ctx, let := context.WithCancel(context.Background())
	s.let = let
	t.Cleanup(s.close)
	for _, p := range s.all() {
		s.keepers.Go(func() { p.keep(ctx) })
	}
	return s
}

// ownBroker prepares a NATS server.
func (s *site) ownBroker(port string) *process {
	s.write(filepath.Join(s.dir, "broker.conf"), fmt.Sprintf(
		"listen: 127.0.0.1:%s\nmax_payload: 4MB\njetstream {\n store_dir: %q\n sync_interval: always\n max_file_store: 4GB\n}\n",
		port, filepath.Join(s.dir, "broker")))
	return s.process("broker", []string{filepath.Join(programs, "nats-server"), "-c", filepath.Join(s.dir, "broker.conf")}, with())
}

// upAs prepares an orchestrator, with the broker in it or beside it.
func (s *site) upAs(i int, embedded bool) {
	listen, name := "127.0.0.1:"+free(s), fmt.Sprintf("orchestrator-%d", i+1)
	state := filepath.Join(s.dir, name)
	where := "NATS_URL=" + s.brokerURL
	if embedded {
		where = "ORCHESTRATOR_BROKER_LISTEN=" + strings.TrimPrefix(s.brokerURL, "nats://")
	}
	o := s.process(name, []string{filepath.Join(programs, "orchestrator"), "up"}, with(where,
		"ORCHESTRATOR_STATE="+state, "ORCHESTRATOR_LISTEN="+listen, "ORCHESTRATOR_LEASE="+lease.String(),
		"ORCHESTRATOR_KEEP_TASKS="+keep.String(), "ORCHESTRATOR_LOG_LEVEL=debug"))
	o.fails = !embedded
	s.orchestrators, s.urls, s.states = append(s.orchestrators, o), append(s.urls, "http://"+listen), append(s.states, state)
}

// runner prepares runner i, on a link and a disk of its own where that can be had.
func (s *site) runner(i int) {
	id := agent(i)
	argv := []string{filepath.Join(programs, "agentrunner"), "run"}
	state, url := filepath.Join(s.dir, id), s.brokerURL
	l := s.link(i)
	if s.links = append(s.links, l); l != nil {
		argv, url = append(l.enter(), argv...), l.url
	}
	if i == runners-1 {
		if s.disk = s.smallDisk(state); s.disk == "" {
			s.Log("left out: a full disk (only root can mount one)")
		}
	}
	p := s.process(id, argv, with(
		"AGENTRUNNER_ID="+id, "AGENTRUNNER_STATE="+state, "NATS_URL="+url, fmt.Sprint("AGENTRUNNER_SLOTS=", slots),
		"AGENTRUNNER_HEARTBEAT=500ms", "AGENTRUNNER_DRAIN=1s", "AGENTRUNNER_WORK_DIRS="+filepath.Join(s.dir, "types"),
		"AGENTRUNNER_LABELS=place="+id, "AGENTRUNNER_LOG_LEVEL=debug"))
	p.fails = state == s.disk // it cannot start where it cannot write
	s.runners = append(s.runners, p)
}

func agent(i int) string { return fmt.Sprintf("runner-%d", i+1) }

func (s *site) process(name string, argv, env []string) *process {
	return &process{site: s, name: name, argv: argv, env: env, log: filepath.Join(s.dir, name+".log")}
}

func (s *site) all() []*process {
	all := slices.Concat(s.relays, s.orchestrators, s.runners)
	if s.broker != s.orchestrators[0] {
		all = append(all, s.broker)
	}
	return all
}

func (s *site) write(path, text string) {
	s.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
}

// free is a port that nobody listens on just now.
func free(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(15000 + rand.IntN(15000)) // not one that the system gives to somebody who connects
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// api is the way into an orchestrator; nil until it has written its credential.
func (s *site) api(i int) *client.Client {
	text, err := os.ReadFile(filepath.Join(s.states[i], "admin.json"))
	if err != nil {
		return nil
	}
	var c struct {
		Token token.Token `json:"token"`
	}
	if json.Unmarshal(text, &c) != nil {
		return nil
	}
	api, err := client.New(s.urls[i], c.Token)
	if err != nil {
		s.wrong("client of %s: %v", s.urls[i], err)
	}
	return api
}

// close ends what a test has left running, whatever became of it.
func (s *site) close() {
	s.let()
	for _, p := range s.all() {
		p.signal(syscall.SIGCONT)
		p.end(syscall.SIGKILL, 0)
	}
	s.keepers.Wait()
	for _, pid := range s.left() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for _, l := range s.links {
		l.remove()
	}
	s.freeDisk()
	s.removeGroup()
}

// left lists the processes whose program is one of ours: supervisors and witnesses, once the others have ended.
func (s *site) left() (pids []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		exe, err := os.Readlink(filepath.Join(e, "exe"))
		if err != nil || !strings.HasPrefix(exe, programs+"/") {
			continue
		}
		var pid int
		if _, err := fmt.Sscan(filepath.Base(e), &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
