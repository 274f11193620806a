package api_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"chiffon/orchestrator/dispatch"
	"chiffon/pkg/message"
	"chiffon/pkg/token"
)

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

func TestTooLargeSaysWhatToDo(t *testing.T) {
	t.Parallel()
	got := newSite(t).do(post(`{"x": "` + strings.Repeat("x", 5<<20) + `"}`)).problem.Detail
	if !strings.Contains(got, "4 MiB") || !strings.Contains(got, "file") {
		t.Errorf("problem = %q, want the limit and what to do", got)
	}
}

func TestTooManyWait(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *dispatch.Config) { c.MaxQueuedPerSubmitter = 1 })
	once := post(good)
	once.header = map[string]string{"Idempotency-Key": "k"}
	if a := s.do(once); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	a := s.do(post(good))
	if a.status != http.StatusTooManyRequests || a.problem.ErrorCode != 5005 || a.header.Get("Retry-After") == "" ||
		a.problem.ErrorContext["limit_name"] != "max_queued_per_submitter" {
		t.Errorf("one more: %d %v %s, want 429 with Retry-After", a.status, a.header, a.body)
	}
	if a := s.do(once); a.status != http.StatusOK {
		t.Errorf("the same again: %d %s, want 200", a.status, a.body)
	}
}
