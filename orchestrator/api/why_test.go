package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
)

// read asks for a path and reads what it answers.
func read[T any](s *site, path string) (v T) {
	s.Helper()
	a := s.do(request{path: path})
	if a.status != http.StatusOK {
		s.Fatalf("GET %s = %d %s", path, a.status, a.body)
	}
	if err := json.Unmarshal(a.body, &v); err != nil {
		s.Fatal(err)
	}
	return v
}

func TestWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	task := s.do(post(good)).task
	w := read[view.Why](s, "/v1/tasks/"+task.TaskID[:8]+"/why")
	if w.ID != task.TaskID || w.State != view.Queued || len(w.Because) != 1 || !strings.Contains(w.Because[0], "no agent of type infra") || w.Next == "" {
		t.Errorf("why = %+v", w)
	}
	s.beat("a", "infra")
	if w := read[view.Why](s, "/v1/tasks/"+task.TaskID+"/why"); !strings.Contains(w.Because[0], "a is about to take it") {
		t.Errorf("why = %+v", w)
	}
	if w := read[view.Why](s, "/v1/agents/a/why"); w.ID != "a" || w.State != "ready" || !strings.Contains(strings.Join(w.Because, "\n"), "1 it could do") {
		t.Errorf("why of the agent = %+v", w)
	}
	if got := s.do(request{method: "POST", path: "/v1/agents/a/pause", body: `{"for_seconds": 3600, "message": "new disk"}`}); got.status != http.StatusOK {
		t.Fatalf("pause = %d %s", got.status, got.body)
	}
	if w := read[view.Why](s, "/v1/tasks/"+task.TaskID+"/why"); !strings.Contains(w.Because[0], "a paused until ") || !strings.Contains(w.Because[0], "new disk") {
		t.Errorf("why = %+v", w)
	}
	if w := read[view.Why](s, "/v1/agents/a/why"); w.State != "paused" || !strings.Contains(w.Because[0], "new disk") || !strings.Contains(w.Next, "agent resume a") {
		t.Errorf("why of the agent = %+v", w)
	}
	if got := s.do(request{path: "/v1/agents/b/why"}); got.status != http.StatusNotFound || got.problem.Detail != "no agent b has registered: did you mean a?" {
		t.Errorf("why of an agent that is misspelt = %d %s", got.status, got.body)
	}
	for _, path := range []string{"/v1/tasks/ffff/why", "/v1/tasks/" + string(message.NewUUID()) + "/why", "/v1/tasks/" + string(message.NewUUID()) + "/history", "/v1/agents/nobody/why"} {
		if got := s.do(request{path: path}); got.status != http.StatusNotFound || got.problem.Detail == "" {
			t.Errorf("GET %s = %d %s, want 404", path, got.status, got.body)
		}
	}
}

func TestHistoryPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.do(post(good)).task.TaskID
	s.do(request{method: "POST", path: "/v1/tasks/" + id + "/cancel", body: `{"reason": "no more"}`})
	all := read[view.History](s, "/v1/tasks/"+id[:8]+"/history")
	if all.TaskID != id || len(all.Events) != 2 || all.NextCursor != "" || all.Events[1].Kind != "cancelled" || all.Events[1].Cause != "asked by admin: no more" || all.Events[1].Writer != "orchestrator" {
		t.Errorf("history = %+v", all)
	}
	first := read[view.History](s, "/v1/tasks/"+id+"/history?limit=1")
	if len(first.Events) != 1 || first.NextCursor != first.Events[0].ID {
		t.Fatalf("first page = %+v", first)
	}
	if rest := read[view.History](s, "/v1/tasks/"+id+"/history?limit=1&cursor="+first.NextCursor); len(rest.Events) != 1 || rest.NextCursor != "" || rest.Events[0].ID != all.Events[1].ID {
		t.Errorf("second page = %+v", rest)
	}
	for _, query := range []string{"cursor=x", "limit=0", "limt=1"} {
		if got := s.do(request{path: "/v1/tasks/" + id + "/history?" + query}); got.status != http.StatusUnprocessableEntity {
			t.Errorf("history?%s = %d %s, want 422", query, got.status, got.body)
		}
	}
}

// A task that has ended is started anew as another one, once for each key.
func TestRetry(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	body := `{"agent_type": "infra", "work_type": "survey", "parameters": {"host": "a", "n": 12345678901234567890}, "name": "x", "labels": {"app": "web"},
		"priority": "high", "queue_timeout_seconds": 120, "hints": {"max_duration_seconds": 9}, "description": "why not"}`
	old := s.do(post(body)).task
	retry := func(id string, key string) answer {
		t.Helper()
		r := request{method: "POST", path: "/v1/tasks/" + id + "/retry"}
		if key != "" {
			r.header = map[string]string{"Idempotency-Key": key}
		}
		return s.do(r)
	}
	end := func(id string) {
		t.Helper()
		if got := s.do(request{method: "POST", path: "/v1/tasks/" + id + "/cancel"}); got.task.State != view.Cancelled {
			t.Fatalf("cancel = %d %s", got.status, got.body)
		}
	}
	if got := retry(old.TaskID, ""); got.status != http.StatusConflict || !strings.Contains(got.problem.Detail, "has not ended") || got.problem.TaskID != old.TaskID {
		t.Errorf("retry of what has not ended = %d %s, want 409", got.status, got.body)
	}
	if got := retry(string(message.NewUUID()), ""); got.status != http.StatusNotFound {
		t.Errorf("retry of what is not there = %d, want 404", got.status)
	}
	end(old.TaskID)
	first := retry(old.TaskID[:8], "")
	n := first.task
	if first.status != http.StatusAccepted || n.TaskID == old.TaskID || n.RetryOf != old.TaskID || n.Name != "x" || n.Labels["app"] != "web" || n.Priority != "high" ||
		string(n.Parameters) != string(old.Parameters) || n.Hints == nil || n.Hints.MaxDurationSeconds != 9 || n.TraceID == old.TraceID || n.Cancel != nil {
		t.Errorf("retry = %d %s", first.status, first.body)
	}
	if n.ExpiresAt == nil || n.ExpiresAt.Sub(n.SubmittedAt).Round(1e9).Seconds() != 120 {
		t.Errorf("the retry expires at %v, submitted at %v: want 120 s", n.ExpiresAt, n.SubmittedAt)
	}
	if got := retry(old.TaskID, ""); got.status != http.StatusOK || got.task.TaskID != n.TaskID {
		t.Errorf("the same retry = %d %s, want 200 and the same task", got.status, got.body)
	}
	one, same, two := retry(old.TaskID, "one"), retry(old.TaskID, "one"), retry(old.TaskID, "two")
	if one.status != http.StatusAccepted || same.status != http.StatusOK || same.task.TaskID != one.task.TaskID || two.status != http.StatusAccepted || two.task.TaskID == one.task.TaskID {
		t.Errorf("with keys: %d %s, %d %s, %d %s", one.status, one.task.TaskID, same.status, same.task.TaskID, two.status, two.task.TaskID)
	}
	end(n.TaskID)
	if chain := retry(n.TaskID, ""); chain.task.RetryOf != n.TaskID {
		t.Errorf("retry of a retry = %d %s, want it to name the retry", chain.status, chain.body)
	}
	// What nobody does any more is refused, as a submission of it is.
	s.beat("a", "infra")
	s.agents.Heard(message.Heartbeat{AgentID: "a", AgentType: "infra", Boot: 2, Slots: 1, Instance: "a", WorkTypes: []message.Offer{{Name: "bake", Attempts: 1}}}, time.Now())
	if got := retry(old.TaskID, "three"); got.status != 422 || got.problem.ErrorCode != 5006 || got.problem.TaskID != old.TaskID {
		t.Errorf("retry of what nobody offers = %d %s, want 422 and 5006", got.status, got.body)
	}
}
