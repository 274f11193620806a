package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"chiffon/orchestrator/api"
	"chiffon/orchestrator/breaker"
	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/gate"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/token"
)

// A site is an API over a real broker, at a real address.
type site struct {
	testing.TB
	*broker.Client
	api      *api.API
	ledger   *ledger.Ledger
	agents   *registry.Registry
	breakers *breaker.Set
	gate     *gate.Gate
	token    token.Token
	url      string
	stopping chan struct{}
	readOnly atomic.Pointer[error] // why nothing new can be stored
	unled    context.CancelFunc    // ends the one that leads
}

func newSite(t testing.TB, set ...func(*dispatch.Config)) *site {
	t.Helper()
	c := natstest.Run(t)
	kv, err := c.Bucket(t.Context(), broker.AgentsBucket)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{TB: t, Client: c, token: token.New(), ledger: ledger.New(c, natstest.Log(t)), stopping: make(chan struct{})}
	if s.agents, err = registry.Open(t.Context(), kv, 30*time.Second, natstest.Log(t)); err != nil {
		t.Fatal(err)
	}
	cfg := dispatch.Config{Name: "one"}
	for _, f := range set {
		f(&cfg)
	}
	d := dispatch.New(cfg, c, s.ledger, s.agents, natstest.Log(t))
	if s.breakers, err = breaker.Open(t.Context(), breaker.Config{Client: c, Agents: s.agents, Ledger: s.ledger, Leads: d.Leading, Log: natstest.Log(t)}); err != nil {
		t.Fatal(err)
	}
	if s.gate, err = gate.Open(t.Context(), gate.Config{Client: c, Agents: s.agents, Breakers: s.breakers, Log: natstest.Log(t)}); err != nil {
		t.Fatal(err)
	}
	s.api = api.New(api.Config{
		Client: c, Ledger: s.ledger, Agents: s.agents, Dispatcher: d, Gate: s.gate, Breakers: s.breakers, TokenHash: s.token.Hash(), Release: "test", Stopping: s.stopping,
		Checks: func(context.Context) []view.Check { return nil },
		ReadOnly: func() error {
			if err := s.readOnly.Load(); err != nil {
				return *err
			}
			return nil
		},
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var led context.Context
	led, s.unled = context.WithCancel(ctx)
	leads := func(context.Context) error { return d.Run(led) }
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{s.ledger.Run, s.breakers.Run, s.gate.Run, leads} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("orchestrator ended: %v", err)
			}
		})
	}
	t.Cleanup(func() { s.unled(); cancel(); wg.Wait() })
	web := httptest.NewServer(s.api)
	t.Cleanup(web.Close)
	s.url = web.URL
	if err := s.ledger.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for s.do(request{path: "/readyz"}).status != http.StatusOK {
		<-tick.C
	}
	return s
}

// beat has an agent heard that does "survey".
func (s *site) beat(id subject.AgentID, kind subject.AgentType) {
	s.Helper()
	s.agents.Heard(message.Heartbeat{
		AgentID: id, AgentType: kind, Boot: 1, Slots: 1, State: message.StateReady, Instance: string(id),
		WorkTypes: []message.Offer{{Name: "survey", Attempts: 1, Parameters: json.RawMessage(
			`{"type": "object", "required": ["host"], "properties": {"host": {"type": "string"}}}`)}},
	}, time.Now())
}

type request struct {
	method, path, body string
	header             map[string]string
	stranger           bool // without the token
}

type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem api.Problem
	task    view.Task
}

func (s *site) send(r request) *http.Response {
	s.Helper()
	if r.method == "" {
		r.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(s.Context(), r.method, s.url+r.path, strings.NewReader(r.body))
	if err != nil {
		s.Fatal(err)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if !r.stranger {
		req.Header.Set("Authorization", "Bearer "+s.token.Reveal())
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	return res
}

func (s *site) do(r request) answer {
	s.Helper()
	res := s.send(r)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, body: body}
	into := any(&a.task)
	if res.Header.Get("Content-Type") == "application/problem+json" {
		into = &a.problem
	}
	if err := json.Unmarshal(body, into); err != nil {
		s.Fatalf("%s %s answers %q: %v", r.method, r.path, body, err)
	}
	if bytes.Contains(body, []byte("$schema")) {
		s.Errorf("%s %s answers with a $schema: %s", r.method, r.path, body)
	}
	return a
}

func post(body string) request {
	return request{method: http.MethodPost, path: "/v1/tasks", body: body}
}

const good = `{"agent_type": "infra", "work_type": "survey", "parameters": {"host": "a"}}`

// with is the good body with one more field, or another.
func with(field, value string) request {
	var body map[string]json.RawMessage
	if err := json.Unmarshal([]byte(good), &body); err != nil {
		panic(err)
	}
	body[field] = json.RawMessage(value)
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return post(string(data))
}

// envelope is a whole work_request, changed.
func envelope(t testing.TB, change func(map[string]any)) string {
	t.Helper()
	m := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(), message.WorkRequest{
		TaskID: subject.TaskID(message.NewUUID()), WorkType: "survey", Parameters: json.RawMessage(`{"host": "a"}`),
	})
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal(data, &body); err != nil {
		t.Fatal(err)
	}
	change(body)
	if data, err = json.Marshal(body); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestSubmit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	created := s.do(with("parameters", `{"host":"a","n":12345678901234567890.5e2}`))
	if created.status != http.StatusAccepted || created.task.State != view.Queued || created.task.WaitingFor == "" ||
		string(created.task.Parameters) != `{"host":"a","n":12345678901234567890.5e2}` {
		t.Fatalf("POST = %d %s", created.status, created.body)
	}
	place := created.header.Get("Location")
	if place != "/v1/tasks/"+created.task.TaskID {
		t.Errorf("Location = %q", place)
	}
	for _, path := range []string{place, place[:len("/v1/tasks/")+8], strings.ToUpper(place[len("/v1/tasks/"):])} {
		if !strings.HasPrefix(path, "/") {
			path = "/v1/tasks/" + path
		}
		if got := s.do(request{path: path}); got.status != http.StatusOK || got.task.TaskID != created.task.TaskID {
			t.Errorf("GET %s = %d %s", path, got.status, got.body)
		}
	}
	if list := s.do(request{path: "/v1/tasks?state=queued&state=running&agent_type=infra&limit=1"}); !strings.Contains(string(list.body), created.task.TaskID) {
		t.Errorf("the list does not show what was accepted: %s", list.body)
	}
	whole := envelope(t, func(map[string]any) {})
	if got := s.do(post(whole)); got.status != http.StatusAccepted || !strings.Contains(whole, got.task.TaskID) || !strings.Contains(whole, got.task.TraceID) {
		t.Errorf("POST of an envelope = %d %s", got.status, got.body)
	}
	if got := s.do(post(whole)); got.status != http.StatusOK {
		t.Errorf("POST of the same envelope = %d %s", got.status, got.body)
	}
	other := s.do(post(strings.Replace(whole, `"host":"a"`, `"host":"b"`, 1)))
	if other.status != 422 || other.problem.TaskID == "" || !strings.Contains(whole, other.problem.TaskID) || !strings.Contains(whole, other.problem.TraceID) {
		t.Errorf("POST of the envelope with another content = %d %s, want 422 about the task and its trace", other.status, other.body)
	}
}

func TestRepeatedSubmission(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, first := range map[string]request{
		"request_id":      with("request_id", `"`+string(message.NewUUID())+`"`),
		"Idempotency-Key": {method: "POST", path: "/v1/tasks", body: good, header: map[string]string{"Idempotency-Key": "backup of 2026-02-01"}},
	} {
		created, again := s.do(first), s.do(first)
		if created.status != http.StatusAccepted || again.status != http.StatusOK || again.task.TaskID != created.task.TaskID || again.header.Get("Location") == "" {
			t.Errorf("%s: POST twice = %d %s, then %d %s", name, created.status, created.body, again.status, again.body)
		}
		other := first
		other.body = strings.Replace(first.body, `"a"`, `"b"`, 1)
		got := s.do(other)
		if got.status != 422 || got.problem.TaskID != created.task.TaskID || got.problem.TraceID != created.task.TraceID {
			t.Errorf("%s: POST of other content = %d %s, want 422 about the first", name, got.status, got.body)
		}
	}
	if one, two := s.do(post(good)), s.do(post(good)); one.task.TaskID == two.task.TaskID {
		t.Error("two requests without an identity are one task")
	}
}

func TestAmbiguousPrefix(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.do(post(envelope(t, func(m map[string]any) {
		m["payload"].(map[string]any)["task_id"] = "aaaaaaaa-0000-4000-8000-000000000001"
	})))
	second := s.do(post(envelope(t, func(m map[string]any) {
		m["payload"].(map[string]any)["task_id"] = "aaaaaaaa-0000-4000-8000-000000000002"
	})))
	got := s.do(request{path: "/v1/tasks/aaaa"})
	if got.status != http.StatusConflict || len(got.problem.Errors) != 2 ||
		got.problem.Errors[0].Message != second.task.TaskID || got.problem.Errors[1].Message != first.task.TaskID {
		t.Errorf("GET of an ambiguous prefix = %d %s, want 409 with both ids", got.status, got.body)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.do(post(good)).task.TaskID
	cancel := request{method: "POST", path: "/v1/tasks/" + id + "/cancel", body: `{"reason": "changed my mind"}`}
	if got := s.do(cancel); got.status != http.StatusAccepted || got.task.State != view.Cancelled {
		t.Errorf("cancel = %d %s, want 202, cancelled", got.status, got.body)
	}
	cancel.body = ""
	if got := s.do(cancel); got.status != http.StatusOK || got.task.State != view.Cancelled {
		t.Errorf("cancel again = %d %s, want 200", got.status, got.body)
	}
}

func TestAgents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if got := s.do(request{path: "/v1/agents"}); string(bytes.TrimSpace(got.body)) != `{"agents":[]}` {
		t.Errorf("GET /v1/agents = %s", got.body)
	}
	s.beat("a", "infra")
	if got := s.do(request{path: "/v1/agents"}); !strings.Contains(string(got.body), `"agent_id":"a"`) || strings.Contains(string(got.body), "required") {
		t.Errorf("GET /v1/agents = %s, want a without its schemas", got.body)
	}
	if got := s.do(request{path: "/v1/agents/a"}); !strings.Contains(string(got.body), `"required"`) {
		t.Errorf("GET /v1/agents/a = %s, want it with its schemas", got.body)
	}
}

func TestOpenWithoutToken(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		if got := s.do(request{path: path, stranger: true}); got.status != http.StatusOK {
			t.Errorf("GET %s without a token = %d", path, got.status)
		}
	}
}
