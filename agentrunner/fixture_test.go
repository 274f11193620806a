package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// The test binary plays the program when it is told to.
const play = "TEST_PLAYS_AGENTRUNNER"

func TestMain(m *testing.M) {
	if os.Getenv(play) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const patience = 30 * time.Second

// A world is a broker with the least orchestrator there can be.
type world struct {
	testing.TB
	*broker.Client
	server *broker.Server
	store  string
	url    string
	stop   func()       // the orchestrator
	hold   net.Listener // keeps the broker's port from others while that is away

	heard chan message.Heartbeat

	mu    sync.Mutex
	reply message.HeartbeatReply
	hear  func(message.Heartbeat) // when set, is told of each before it is answered
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, store: t.TempDir(), heard: make(chan message.Heartbeat, 1000)}
	w.up("127.0.0.1:0")
	w.url = w.server.URL()
	names, err := w.TypeConsumers(t.Context(), "infra")
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock() // a runner that has lost its broker may have come to this one's port already
	defer w.mu.Unlock()
	w.reply = message.HeartbeatReply{ProtocolVersion: "1.0", LeaseSeconds: 3, Consumers: names}
	return w
}

// up starts broker and orchestrator.
func (w *world) up(listen string) {
	w.Helper()
	if w.hold != nil {
		_ = w.hold.Close() // nobody was served
	}
	w.server, w.Client = natstest.Start(w, broker.ServerConfig{Dir: w.store, Relaxed: true, Listen: listen})
	c := w.Client
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Serve(ctx, subject.AllHeartbeats, w.heartbeat) })
	wg.Go(func() {
		_ = c.Serve(ctx, subject.AllCalls, func(ctx context.Context, _ string, data []byte) []byte { return w.get(ctx, c, data) })
	})
	w.stop = func() { stop(); wg.Wait() }
	w.Cleanup(w.stop)
}

// down stops both, as a host does that is restarted.
func (w *world) down() {
	w.Helper()
	w.stop()
	w.server.Stop()
	hold, err := net.Listen("tcp", strings.TrimPrefix(w.url, "nats://"))
	if err != nil {
		w.Fatal(err)
	}
	w.hold = hold
	w.Cleanup(func() { _ = hold.Close() }) // closed by up as a rule
}

func (w *world) heartbeat(_ context.Context, _ string, data []byte) []byte {
	hb, err := message.DecodeHeartbeat(data)
	if err != nil {
		w.Errorf("heartbeat %s: %v", data, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hear != nil {
		w.hear(hb)
	}
	w.heard <- hb
	return w.json(w.reply)
}

func (w *world) json(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		w.Error(err)
	}
	return text
}

func (w *world) get(ctx context.Context, c *broker.Client, data []byte) []byte {
	var q struct {
		Task subject.TaskID `json:"task_id"`
	}
	if err := json.Unmarshal(data, &q); err != nil {
		w.Error(err)
	}
	var r broker.LogReply
	for m, err := range c.Range(ctx, subject.TasksStream, subject.Task(q.Task), 1) {
		if err != nil {
			return nil
		}
		r.Messages = append(r.Messages, m)
	}
	return w.json(r)
}

// listens waits for a heartbeat that is as it should be.
func (w *world) listens(what string, is func(message.Heartbeat) bool) message.Heartbeat {
	w.Helper()
	for after := time.After(patience); ; {
		select {
		case hb := <-w.heard:
			if is(hb) {
				return hb
			}
		case <-after:
			w.Fatalf("no heartbeat: %s", what)
		}
	}
}

func (w *world) submit(workType, file string) subject.TaskID {
	w.Helper()
	id := subject.TaskID(message.NewUUID())
	params := json.RawMessage("{}")
	if file != "" {
		params = w.json(map[string]string{"file": file})
	}
	m := message.New("orchestrator", "infra", message.NewUUID(), message.NewUUID(),
		message.WorkRequest{TaskID: id, WorkType: workType, Parameters: params})
	d, err := tasklog.Write(tasklog.Submitted, id, subject.Request(id, "infra", subject.Any, subject.Normal), m)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.Append(w.Context(), d.At(0, 0, 0)); err != nil {
		w.Fatal(err)
	}
	return id
}

// entry waits for an entry of a kind in a task's log.
func (w *world) entry(id subject.TaskID, kind tasklog.Kind) tasklog.Entry {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	var seen []tasklog.Kind
	for m, err := range w.Tail(ctx, subject.TasksStream, 1) {
		if err != nil {
			w.Fatal(err)
		}
		e := m.Entry()
		if e.Subject.Task != id {
			continue
		}
		if seen = append(seen, e.Kind); e.Kind == kind {
			return e
		}
	}
	w.Fatalf("log of the task is %v, want %s", seen, kind)
	return tasklog.Entry{}
}
