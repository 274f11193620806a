package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/orchestrator/api"
	"chiffon/orchestrator/dispatch"
	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/registry"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
	"chiffon/pkg/token"
)

var update = flag.Bool("update", false, "write docs/openapi.json anew")

// A site is an API over a real broker, at a real address.
type site struct {
	testing.TB
	*broker.Client
	api      *api.API
	ledger   *ledger.Ledger
	agents   *registry.Registry
	token    token.Token
	url      string
	stopping chan struct{}
}

func newSite(t testing.TB) *site {
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
	d := dispatch.New(dispatch.Config{Name: "one"}, c, s.ledger, s.agents, natstest.Log(t))
	s.api = api.New(api.Config{
		Client: c, Ledger: s.ledger, Agents: s.agents, Dispatcher: d, TokenHash: s.token.Hash(), Release: "test", Stopping: s.stopping,
		Checks: func(context.Context) []view.Check { return nil },
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{s.ledger.Run, d.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Errorf("orchestrator ended: %v", err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
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

func TestProblems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.beat("a", "infra")
	s.beat("d", "desktop")
	payload := func(change func(map[string]any)) request {
		return post(envelope(t, func(m map[string]any) { change(m["payload"].(map[string]any)) }))
	}
	unknown := "/v1/tasks/" + string(message.NewUUID())
	for name, c := range map[string]struct {
		request  request
		status   int
		code     int
		location string // of one of the errors
	}{
		"no token":              {request{path: "/v1/tasks", stranger: true}, 401, 5004, ""},
		"another token":         {request{path: "/v1/tasks", header: map[string]string{"Authorization": "Bearer " + token.New().Reveal()}}, 401, 5004, ""},
		"no token, no path":     {request{path: "/nothing", stranger: true}, 401, 5004, ""},
		"no path":               {request{path: "/nothing"}, 404, 0, ""},
		"no page":               {request{path: "/docs"}, 404, 0, ""},
		"no schemas":            {request{path: "/schemas/Task.json"}, 404, 0, ""},
		"method":                {request{method: "DELETE", path: "/v1/tasks"}, 405, 0, ""},
		"content type":          {request{method: "POST", path: "/v1/tasks", body: good, header: map[string]string{"Content-Type": "text/plain"}}, 415, 0, "header.Content-Type"},
		"no body":               {post(""), 400, 5003, "body"},
		"no JSON":               {post("hello"), 422, 5003, "body"},
		"no object":             {post("[]"), 422, 5003, "body"},
		"too large":             {post(`{"x": "` + strings.Repeat("x", 5<<20) + `"}`), 413, 0, ""},
		"field missing":         {post(`{"agent_type": "infra", "parameters": {}}`), 422, 5003, "body.work_type"},
		"parameters missing":    {post(`{"agent_type": "infra", "work_type": "survey"}`), 422, 5003, "body.parameters"},
		"wrong type":            {with("agent_type", "7"), 422, 5003, "body.agent_type"},
		"null":                  {with("parameters", "null"), 422, 5003, "body.parameters"},
		"array":                 {with("parameters", "[]"), 422, 5003, "body.parameters"},
		"unknown field":         {with("prio", `"low"`), 422, 5003, "body.prio"},
		"priority":              {with("priority", `"asap"`), 422, 5003, "body.priority"},
		"no type to submit to":  {with("agent_type", `"orchestrator"`), 422, 5003, "body.agent_type"},
		"no word":               {with("agent_type", `"In fra"`), 422, 5003, "body.agent_type"},
		"label's value":         {with("labels", `{"a": 1}`), 422, 5003, "body.labels.a"},
		"label's key":           {with("labels", `{"a=b": "1"}`), 422, 5003, "body.labels"},
		"hints":                 {with("hints", `{"max_memory_mb": -1}`), 422, 5003, "body.hints.max_memory_mb"},
		"hint unknown":          {with("hints", `{"memory": 1}`), 422, 5003, "body.hints.memory"},
		"queue timeout":         {with("queue_timeout_seconds", "-1"), 422, 5003, "body.queue_timeout_seconds"},
		"request_id":            {with("request_id", `"x"`), 422, 5003, "body.request_id"},
		"request_id as a URN":   {with("request_id", `"urn:uuid:8d4cbb3a-3f55-4f1b-9a9e-2a3a4a5a6a7a"`), 422, 5003, "body.request_id"},
		"agent of another type": {with("agent", `"d"`), 422, 5003, "body.agent"},
		"parameter missing":     {with("parameters", `{}`), 422, 5003, "body.parameters.host"},
		"parameter's type":      {with("parameters", `{"host": 1}`), 422, 5003, "body.parameters.host"},
		"work type":             {with("work_type", `"dance"`), 422, 5006, "body.work_type"},
		"two identities": {request{
			method: "POST", path: "/v1/tasks", header: map[string]string{"Idempotency-Key": "k"},
			body: with("request_id", `"8d4cbb3a-3f55-4f1b-9a9e-2a3a4a5a6a7a"`).body,
		}, 422, 5003, "header.Idempotency-Key"},

		"envelope: version":      {post(envelope(t, func(m map[string]any) { m["protocol_version"] = "2.0" })), 422, 5006, "body.protocol_version"},
		"envelope: only version": {post(`{"protocol_version": "2.0"}`), 422, 5006, "body.protocol_version"},
		"envelope: type":         {post(envelope(t, func(m map[string]any) { m["type"] = "work_status" })), 422, 5003, "body.type"},
		"envelope: field":        {post(envelope(t, func(m map[string]any) { delete(m, "trace_id") })), 422, 5003, "body.trace_id"},
		"envelope: to_agent":     {post(envelope(t, func(m map[string]any) { m["to_agent"] = "orchestrator" })), 422, 5003, "body.to_agent"},
		"envelope: hints":        {payload(func(p map[string]any) { p["hints"] = map[string]any{"max_duration_seconds": 0} }), 422, 5003, "body.payload.hints.max_duration_seconds"},
		"envelope: parameter":    {payload(func(p map[string]any) { p["parameters"] = map[string]any{} }), 422, 5003, "body.payload.parameters.host"},
		"envelope: work type":    {payload(func(p map[string]any) { p["work_type"] = "dance" }), 422, 5006, "body.payload.work_type"},
		"envelope: priority": {post(envelope(t, func(m map[string]any) {
			m["x_custom_fields"] = map[string]any{"chiffon": map[string]any{"priority": "asap"}}
		})), 422, 5003, "body.x_custom_fields.chiffon.priority"},

		"unknown task":      {request{path: unknown}, 404, 0, ""},
		"unknown prefix":    {request{path: "/v1/tasks/0000000"}, 404, 0, "path.id"},
		"no id":             {request{path: "/v1/tasks/hello"}, 404, 0, "path.id"},
		"events of no task": {request{path: unknown + "/events"}, 404, 0, ""},
		"cancel no task":    {request{method: "POST", path: unknown + "/cancel"}, 404, 0, ""},
		"cancel how":        {request{method: "POST", path: unknown + "/cancel", body: `{"signal": "NICE"}`}, 422, 5003, "body.signal"},
		"event id":          {request{path: unknown + "/events", header: map[string]string{"Last-Event-ID": "x"}}, 422, 0, "header.Last-Event-ID"},
		"unknown agent":     {request{path: "/v1/agents/nobody"}, 404, 0, "path.id"},
		"cursor":            {request{path: "/v1/tasks?cursor=x"}, 422, 0, "query.cursor"},
		"limit":             {request{path: "/v1/tasks?limit=501"}, 422, 5003, "query.limit"},
		"limit no number":   {request{path: "/v1/tasks?limit=many"}, 422, 5003, "query.limit"},
		"state":             {request{path: "/v1/tasks?state=late"}, 422, 5003, "query.state[0]"},
		"since":             {request{path: "/v1/tasks?since=yesterday"}, 422, 5003, "query.since"},
		"label":             {request{path: "/v1/tasks?label=x"}, 422, 0, "query.label"},
		"misspelt filter":   {request{path: "/v1/tasks?stat=queued"}, 422, 5003, "query.stat"},
	} {
		got := s.do(c.request)
		p := got.problem
		found := c.location == ""
		for _, d := range p.Errors {
			found = found || d.Location == c.location && d.Message != ""
		}
		path, _, _ := strings.Cut(c.request.path, "?")
		if got.status != c.status || p.Status != c.status || p.ErrorCode != c.code || !found || p.Title == "" || p.Type == "" || p.Detail == "" || p.Instance != path {
			t.Errorf("%s: answer %d %s, want %d with code %d about %q", name, got.status, got.body, c.status, c.code, c.location)
		}
		if c.status == 401 && got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
		if c.code == 5006 && !strings.Contains(c.location, "version") && !strings.Contains(string(got.body), `"supported_types":["survey"]`) {
			t.Errorf("%s: it does not say what is supported: %s", name, got.body)
		}
		if bytes.Contains(got.body, []byte(s.token.Reveal())) {
			t.Errorf("%s: the token is in the answer", name)
		}
	}
	if list := s.do(request{path: "/v1/tasks"}); !strings.Contains(string(list.body), `"tasks":[]`) {
		t.Errorf("what was refused is there: %s", list.body)
	}
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

// began has an agent start a task and say one thing, as far as a reader is concerned.
func (s *site) began(id subject.TaskID) {
	s.Helper()
	st := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkStatus{TaskID: id, Status: message.StatusRunning})
	st.Custom = message.Custom{AgentID: "a", Chiffon: &message.Extension{Attempt: 1, Attempts: 1}}
	d, err := tasklog.Write(tasklog.Started, id, subject.Event(id, "a"), st)
	s.append(id, d, err)
	st.MessageID = message.NewUUID()
	data, err := st.Encode()
	if err != nil {
		s.Fatal(err)
	}
	r, err := s.Send(subject.Status(id, "a"), data)
	if err == nil {
		err = r.Wait(s.Context())
	}
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) ended(id subject.TaskID) {
	s.Helper()
	m := message.New("infra", subject.Orchestrator, message.NewUUID(), message.NewUUID(), message.WorkResult{TaskID: id, Status: message.ResultSuccess})
	m.Custom = message.Custom{AgentID: "a", Chiffon: &message.Extension{StatusCount: 1}}
	d, err := tasklog.Write(tasklog.Succeeded, id, subject.Event(id, "a"), m)
	s.append(id, d, err)
}

func (s *site) append(id subject.TaskID, d tasklog.Draft, err error) {
	s.Helper()
	tail, err2 := s.End(s.Context(), subject.TasksStream, subject.Task(id))
	if err == nil {
		err = err2
	}
	if err == nil {
		_, err = s.Append(s.Context(), d.At(tail, 1, 1))
	}
	if err != nil {
		s.Fatal(err)
	}
}

// stream reads events until there are n or no more, as "id event".
func (s *site) stream(r request, n int) (ids, names []string) {
	s.Helper()
	res := s.send(r)
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		s.Fatalf("GET %s = %s %v", r.path, res.Status, res.Header)
	}
	text := make([]byte, 0, 64<<10)
	buf := make([]byte, 4096)
	for strings.Count(string(text), "\n\n") < n {
		k, err := res.Body.Read(buf)
		text = append(text, buf[:k]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			s.Fatal(err)
		}
	}
	for line := range strings.Lines(string(text)) {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			ids = append(ids, strings.TrimSpace(id))
		}
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return ids, names
}

func TestEvents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.do(post(good)).task.TaskID
	path := "/v1/tasks/" + id + "/events"
	if _, got := s.stream(request{path: path}, 99); strings.Join(got, " ") != "entry" {
		t.Errorf("events now = %v, want the one entry, and the end of the answer", got)
	}
	s.began(subject.TaskID(id))
	ids, got := s.stream(request{path: path + "?follow=true"}, 3)
	if strings.Join(got, " ") != "entry entry status" {
		t.Fatalf("events so far = %v", got)
	}
	s.ended(subject.TaskID(id))
	_, got = s.stream(request{path: path + "?follow=true", header: map[string]string{"Last-Event-ID": ids[1]}}, 99)
	if strings.Join(got, " ") != "status entry end" {
		t.Errorf("events behind %s = %v, want status entry end, and the end of the answer", ids[1], got)
	}
	prefix := "/v1/tasks/" + id[:10] + "/events?follow=true"
	if _, got = s.stream(request{path: prefix}, 99); strings.Join(got, " ") != "entry entry status entry end" {
		t.Errorf("all events = %v", got)
	}
}

// A server that stops lets its followers go, and they come back with their last id.
func TestEventsEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.do(post(good)).task.TaskID
	res := s.send(request{path: "/v1/tasks/" + id + "/events?follow=true"})
	defer res.Body.Close()
	close(s.stopping)
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Errorf("the stream breaks: %v", err)
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

// docs/openapi.json is what the server says of itself, the same in every process.
func TestOpenAPIIsCurrent(t *testing.T) {
	t.Parallel()
	const file = "../../docs/openapi.json"
	want := api.New(api.Config{}).OpenAPI()
	if again := api.New(api.Config{}).OpenAPI(); !bytes.Equal(again, want) {
		t.Error("the document differs from one time to the next")
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not current (%v): go test ./orchestrator/api -update", file, err)
	}
}

func TestOpenAPIIsSound(t *testing.T) {
	t.Parallel()
	var doc map[string]any
	if err := json.Unmarshal(api.New(api.Config{}).OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	if v, _ := doc["openapi"].(string); !strings.HasPrefix(v, "3.1") {
		t.Errorf("openapi = %v, want 3.1", doc["openapi"])
	}
	at := func(pointer string) any {
		v := any(doc)
		for key := range strings.SplitSeq(strings.TrimPrefix(pointer, "#/"), "/") {
			m, _ := v.(map[string]any)
			v = m[key]
		}
		return v
	}
	if at("#/components/securitySchemes/token") == nil {
		t.Error("no security scheme")
	}
	if at("#/components/schemas/NewTask/properties/agent_type") == nil {
		t.Error("no NewTask")
	}
	body, err := json.Marshal(at("#/paths").(map[string]any)["/v1/tasks"].(map[string]any)["post"].(map[string]any)["requestBody"])
	if err != nil || !bytes.Contains(body, []byte(`"#/components/schemas/NewTask"`)) || !bytes.Contains(body, []byte("work_request")) {
		t.Errorf("the body of a submission is %s, %v, want a NewTask or an envelope", body, err)
	}
	seen := map[string]bool{}
	for path, item := range doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			o := op.(map[string]any)
			id, _ := o["operationId"].(string)
			if id == "" || seen[id] || o["summary"] == nil || o["responses"] == nil {
				t.Errorf("%s %s: operationId %q, summary or responses", method, path, id)
			}
			seen[id] = true
			open := path == "/healthz" || path == "/readyz"
			if (o["security"] == nil) != open {
				t.Errorf("%s %s: security = %v", method, path, o["security"])
			}
		}
	}
	var walk func(where string, v any)
	walk = func(where string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok && at(ref) == nil {
				t.Errorf("%s: %s leads nowhere", where, ref)
			}
			for key, below := range v {
				if key == "$schema" {
					t.Errorf("%s has a $schema", where)
				}
				walk(where+"/"+key, below)
			}
		case []any:
			for _, below := range v {
				walk(where, below)
			}
		}
	}
	walk("#", doc)
}
