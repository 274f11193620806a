package broker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// The test binary plays a broker in a process of its own when this is set to the store's directory and the address.
const playBroker = "CHIFFON_TEST_BROKER"

func TestMain(m *testing.M) {
	if what := os.Getenv(playBroker); what != "" {
		dir, listen, _ := strings.Cut(what, " ")
		s, err := broker.Start(broker.ServerConfig{Dir: dir, Listen: listen, Relaxed: true, SyncEvery: time.Minute})
		if err != nil {
			fmt.Printf("error %t %v\n", errors.Is(err, broker.ErrStoreLocked), err)
			os.Exit(3)
		}
		fmt.Println(s.URL())
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent lets go
		s.Stop()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A process is a broker in a process of its own.
type process struct {
	cmd  *exec.Cmd
	said string // its first line: the URL, or what went wrong
}

func startProcess(t *testing.T, dir, listen string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(context.Background(), self)}
	p.cmd.Env = append(os.Environ(), playBroker+"="+dir+" "+listen)
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); p.kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the broker process says nothing: %v", err)
	}
	p.said = strings.TrimSpace(line)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may be gone
	_ = p.cmd.Wait()         // killed is what it is
}

// listening starts a broker on a free port.
func listening(t *testing.T) (*broker.Server, *broker.Client) {
	t.Helper()
	return natstest.Start(t, broker.ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Relaxed: true})
}

// raw is a connection for what no program of ours would do.
func raw(t *testing.T, s *broker.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// put stores a message as it is.
func put(t *testing.T, nc *nats.Conn, m *nats.Msg) {
	t.Helper()
	ack, err := nc.RequestMsgWithContext(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(ack.Data), `"error"`) {
		t.Fatalf("not stored: %s", ack.Data)
	}
}

func newTask() subject.TaskID { return subject.TaskID(message.NewUUID()) }

// A writer is who appends: an agent's id, or orchestrator.
type writer struct {
	id   string
	boot uint64
}

var boss = writer{id: subject.Orchestrator}

// draft writes an entry of one kind as its writer would. mark is for attempt_failed.
func (w writer) draft(id subject.TaskID, k tasklog.Kind, x message.Extension, s tasklog.State) (tasklog.Draft, error) {
	attempt := s.Attempt
	subj := subject.Event(id, w.id)
	from, to := subject.AgentType("infra"), subject.AgentType(subject.Orchestrator)
	if w.id == subject.Orchestrator {
		from, to = to, from
	}
	custom := message.Custom{Chiffon: &x}
	if w.id != subject.Orchestrator {
		custom.AgentID = subject.AgentID(w.id)
	}
	var d tasklog.Draft
	var err error
	switch k {
	case tasklog.Submitted, tasklog.Queued:
		subj = subject.Request(id, "infra", subject.Any, subject.Normal)
		d, err = put1(k, id, subj, from, to, custom, message.WorkRequest{TaskID: id, WorkType: "run", Parameters: json.RawMessage(`{}`)})
	case tasklog.Started, tasklog.Paused, tasklog.Resumed, tasklog.CancelRequested:
		st := message.StatusRunning
		switch k {
		case tasklog.Started:
			x.Attempts = max(x.Attempts, 1)
			attempt++
		case tasklog.Paused:
			st = message.StatusPaused
		case tasklog.CancelRequested:
			x.Cancel = &message.Cancel{Reason: "enough"}
		}
		d, err = put1(k, id, subj, from, to, custom, message.WorkStatus{TaskID: id, Status: st})
	case tasklog.Succeeded, tasklog.Failed, tasklog.Cancelled:
		r := message.WorkResult{TaskID: id, Status: message.ResultSuccess, ResourcesUsed: &message.ResourcesUsed{}}
		if k == tasklog.Failed {
			r.Status, r.ExitCode = message.ResultFailed, 1
		} else if k == tasklog.Cancelled {
			r.Status, r.ExitCode = message.ResultCancelled, 143
		}
		d, err = put1(k, id, subj, from, to, custom, r)
	default:
		d, err = put1(k, id, subj, from, to, custom, message.FailureOf(fault.New(fault.Timeout, "no answer")))
	}
	return d.At(s.TailSeq, attempt, w.boot), err
}

func put1[P message.Payload](k tasklog.Kind, id subject.TaskID, subj string, from, to subject.AgentType, custom message.Custom, payload P) (tasklog.Draft, error) {
	m := message.New(from, to, message.NewUUID(), message.NewUUID(), payload)
	m.Custom = custom
	return tasklog.Write(k, id, subj, m)
}

// next appends an entry that is known to fit, and adds it to the state.
func (w writer) next(t testing.TB, c *broker.Client, id subject.TaskID, k tasklog.Kind, s tasklog.State) tasklog.State {
	t.Helper()
	d, err := w.draft(id, k, message.Extension{Attempts: 4}, s)
	if err != nil {
		t.Fatal(err)
	}
	seq, err := c.Append(t.Context(), d)
	if err != nil {
		t.Fatalf("append %s: %v", k, err)
	}
	s, err = s.Next(tasklog.Read(d.Subject, d.Header(), d.Data, seq, zeroTime))
	if err != nil {
		t.Fatalf("%s is void: %v", k, err)
	}
	return s
}

// copies counts an entry in a log.
func copies(log []tasklog.Entry, id string) (n int, at uint64) {
	for _, e := range log {
		if e.ID == id {
			n, at = n+1, e.Seq
		}
	}
	return n, at
}

// A proxy stands between a client and a server, and can keep the server's words to itself.
type proxy struct {
	l      net.Listener
	server string

	mu    sync.Mutex
	mute  bool
	conns []net.Conn
}

func newProxy(t *testing.T, serverURL string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, server: strings.TrimPrefix(serverURL, "nats://")}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.carry(client) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.cut(); wg.Wait() })
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

// silence keeps from now on whatever the server says from its clients; cut ends the connections, and new ones hear it.
func (p *proxy) silence() { p.mu.Lock(); p.mute = true; p.mu.Unlock() }

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = false
	for _, c := range p.conns {
		_ = c.Close() // it may have ended by itself
	}
	p.conns = nil
}

func (p *proxy) carry(client net.Conn) {
	server, err := (&net.Dialer{}).Dial("tcp", p.server)
	if err != nil {
		_ = client.Close() // the client tries again
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, client, server)
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() }) // the end of one is the end of both
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		p.mu.Lock()
		mute := p.mute
		p.mu.Unlock()
		if !mute && n > 0 {
			if _, err := client.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, _ = client.Close(), server.Close() // likewise
	wg.Wait()
}

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	news chan struct{}
}

func newLines() *lines { return &lines{news: make(chan struct{}, 1)} }

func (l *lines) log() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default: // somebody is told already
	}
	return l.text.Write(p)
}

// wait returns when a line has the words.
func (l *lines) wait(t *testing.T, words string) {
	t.Helper()
	for {
		l.mu.Lock()
		found := strings.Contains(l.text.String(), words)
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-l.news:
		case <-t.Context().Done():
			t.Fatalf("%q is never logged", words)
		}
	}
}
