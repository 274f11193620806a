package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"chiffon/orchestrator/server"
	"chiffon/pkg/broker"
)

// playBroker makes the test's own program a broker: its value is a directory and an address.
const playBroker = "CHIFFON_TEST_PLAY_BROKER"

func TestMain(m *testing.M) {
	if what := os.Getenv(playBroker); what != "" {
		dir, listen, _ := strings.Cut(what, " ")
		s, err := broker.Start(broker.ServerConfig{Dir: dir, Listen: listen, Relaxed: true, SyncEvery: time.Minute})
		if err != nil {
			fmt.Println(err)
			os.Exit(3)
		}
		fmt.Println(s.URL())
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent lets go
		s.Stop()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A remote broker runs in a process of its own.
type remote struct {
	cmd *exec.Cmd
	url string
}

func startBroker(t *testing.T, dir, listen string) *remote {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{cmd: exec.CommandContext(context.Background(), self)}
	r.cmd.Env = append(os.Environ(), playBroker+"="+dir+" "+listen)
	in, err := r.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); r.kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the broker says nothing: %v", err)
	}
	r.url = strings.TrimSpace(line)
	return r
}

func (r *remote) kill() {
	_ = r.cmd.Process.Kill() // it may be gone
	_ = r.cmd.Wait()         // killed is what it is
}

// tenfold is ten times the 5 s after which it is known that a broker does not answer.
const tenfold = 50 * time.Second

const survey = `{"agent_type": "infra", "work_type": "survey_host", "parameters": {}}`

// away checks that the server says at once, to whoever needs the broker, that it is away, and goes on with what it knows.
func (r *running) away(task string) {
	r.Helper()
	r.ready(http.StatusServiceUnavailable)
	for _, q := range [][3]string{
		{http.MethodPost, "/v1/tasks", survey},
		{http.MethodPost, task + "/cancel", "{}"},
		{http.MethodGet, task, ""},
		{http.MethodGet, task + "/events", ""},
	} {
		began := time.Now()
		res := r.do(q[0], q[1], q[2])
		took := time.Since(began)
		var p struct {
			Code    int            `json:"error_code"`
			Context map[string]any `json:"error_context"`
			Detail  string
		}
		err := json.NewDecoder(res.Body).Decode(&p)
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || err != nil || p.Code != 5002 || !strings.Contains(p.Detail, "nothing was done by this call") ||
			res.Header.Get("Content-Type") != "application/problem+json" {
			r.Errorf("%s %s without a broker: %s %v %+v, %v", q[0], q[1], res.Status, res.Header, p, err)
		}
		if _, said := p.Context["last_heartbeat"]; !said || p.Context["agent_id"] != "orchestrator" || p.Context["maybe_done"] != nil {
			r.Errorf("%s %s without a broker: context %v", q[0], q[1], p.Context)
		}
		if took > time.Second { // at once is 100 ms
			r.Errorf("%s %s without a broker took %v", q[0], q[1], took)
		}
	}
	for _, path := range []string{"/v1/tasks", "/v1/agents", "/v1/breakers"} {
		if res := r.do(http.MethodGet, path, ""); res.StatusCode != http.StatusOK || res.Header.Get("Warning") == "" {
			r.Errorf("GET %s without a broker: %s, Warning %q", path, res.Status, res.Header.Get("Warning"))
		}
	}
	if res := r.do(http.MethodGet, "/healthz", ""); res.StatusCode != http.StatusOK {
		r.Errorf("healthz = %s", res.Status)
	}
}

// The broker is stopped (it keeps its connections and says nothing), goes on, is killed, and comes back.
func TestBrokerIsAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startBroker(t, dir, "127.0.0.1:0")
	r := start(t, server.Config{State: t.TempDir(), Listen: "127.0.0.1:0", NATSURL: b.url})
	r.ready(http.StatusOK)
	res := r.do(http.MethodPost, "/v1/tasks", survey)
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("POST /v1/tasks = %s", res.Status)
	}
	task := res.Header.Get("Location")

	if err := b.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var state syscall.WaitStatus // each of its threads stops when it gets to run
	if _, err := syscall.Wait4(b.cmd.Process.Pid, &state, syscall.WUNTRACED, nil); err != nil || !state.Stopped() {
		t.Fatalf("the broker is not stopped: %v, %v", state, err)
	}
	began := time.Now()
	cancelled := make(chan *http.Response, 1)
	go func() { cancelled <- r.do(http.MethodPost, task+"/cancel", "{}") }()
	waiting := r.do(http.MethodPost, "/v1/tasks", survey) // before anybody knows
	if took := time.Since(began); waiting.StatusCode != http.StatusServiceUnavailable || took > tenfold {
		t.Errorf("a request that met the stop: %s after %v", waiting.Status, took)
	} else {
		t.Logf("a request that met the stop was let go after %v", took.Round(time.Millisecond))
	}
	for res, words := range map[*http.Response]string{
		waiting: "with the same request_id or Idempotency-Key it is one task", <-cancelled: "to repeat it is harmless",
	} {
		body, err := io.ReadAll(res.Body)
		if text := string(body); err != nil || !strings.Contains(text, "is not known: ") || !strings.Contains(text, words) || !strings.Contains(text, `"maybe_done":true`) ||
			strings.Contains(text, "nothing was done") {
			r.Errorf("let go under way: %s, %v, want %q", text, err, words)
		}
	}
	r.away(task)
	if err := b.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.ready(http.StatusOK)
	if res := r.do(http.MethodGet, task, ""); res.StatusCode != http.StatusOK || res.Header.Get("Warning") != "" {
		t.Errorf("GET %s = %s", task, res.Status)
	}

	b.kill()
	r.away(task)
	startBroker(t, dir, strings.TrimPrefix(b.url, "nats://"))
	r.ready(http.StatusOK)
	if res := r.do(http.MethodGet, task, ""); res.StatusCode != http.StatusOK {
		t.Errorf("GET %s = %s", task, res.Status)
	}
}

// Where somebody asks again and again whether it is ready, a stop is told before the server stops listening.
func TestStopGoesUnreadyFirst(t *testing.T) {
	t.Parallel()
	r := start(t, here(t))
	r.ready(http.StatusOK)
	r.ready(http.StatusOK)
	ended := make(chan error, 1)
	go func() { ended <- r.stop() }()
	for {
		res, err := http.Get(r.URL() + "/readyz")
		if err != nil {
			t.Fatalf("it stopped listening without a word: %v", err)
		}
		data, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode == http.StatusServiceUnavailable {
			if err != nil || !strings.Contains(string(data), "stopping") {
				t.Errorf("readyz = %s %s, %v", res.Status, data, err)
			}
			break
		}
	}
	if res, err := http.Get(r.URL() + "/healthz"); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("healthz while stopping: %v, %v", res, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
