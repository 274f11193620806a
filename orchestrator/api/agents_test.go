package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/api"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

func (s *site) agent(r request, want int) (v view.Agent, p api.Problem) {
	s.Helper()
	a := s.do(r)
	if a.status != want {
		s.Fatalf("%s %s %s: status %d, want %d: %s", r.method, r.path, r.body, a.status, want, a.body)
	}
	if want == http.StatusOK {
		if err := json.Unmarshal(a.body, &v); err != nil {
			s.Fatal(err)
		}
	}
	return v, a.problem
}

func tell(path, body string) request {
	return request{method: http.MethodPost, path: path, body: body}
}

func TestPauseDrainResume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.beat("nas", "infra")
	v, _ := s.agent(tell("/v1/agents/nas/pause", `{"for_seconds": 3600, "message": "new disk"}`), 200)
	if v.State != "paused" || v.PausedUntil == nil || time.Until(*v.PausedUntil).Round(time.Minute) != time.Hour || !strings.Contains(v.Detail, "new disk") {
		t.Errorf("paused: %+v", v)
	}
	at := time.Now().Add(2 * time.Hour).Truncate(time.Second).UTC()
	if v, _ = s.agent(tell("/v1/agents/nas/pause", `{"until": "`+at.Format(time.RFC3339)+`"}`), 200); v.PausedUntil == nil || !v.PausedUntil.Equal(at) {
		t.Errorf("paused until %v: %+v", at, v)
	}
	if v, _ = s.agent(tell("/v1/agents/nas/drain", `{"deadline_seconds": 60}`), 200); v.State != "draining" || v.DrainUntil == nil || v.PausedUntil != nil {
		t.Errorf("draining: %+v", v)
	}
	if v, _ = s.agent(request{path: "/v1/agents/nas"}, 200); v.State != "draining" {
		t.Errorf("asked for: %+v", v)
	}
	if v, _ = s.agent(tell("/v1/agents/nas/resume", ""), 200); v.State != "ready" || v.Detail != "" || v.DrainUntil != nil {
		t.Errorf("resumed: %+v", v)
	}
}

func TestWrongPausesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.beat("nas", "infra")
	for name, c := range map[string]struct {
		path, body string
		status     int
	}{
		"unknown agent":         {"/v1/agents/nass/pause", `{"for_seconds": 1}`, 404},
		"unknown, resumed":      {"/v1/agents/nass/resume", ``, 404},
		"unknown, drained":      {"/v1/agents/nass/drain", `{"deadline_seconds": 1}`, 404},
		"unknown, reset":        {"/v1/breakers/nass/reset", ``, 404},
		"neither":               {"/v1/agents/nas/pause", `{}`, 422},
		"both":                  {"/v1/agents/nas/pause", `{"for_seconds": 1, "until": "2126-01-01T00:00:00Z"}`, 422},
		"over":                  {"/v1/agents/nas/pause", `{"until": "2026-01-01T00:00:00Z"}`, 422},
		"no time":               {"/v1/agents/nas/pause", `{"until": "soon"}`, 422},
		"negative":              {"/v1/agents/nas/pause", `{"for_seconds": -1}`, 422},
		"too long":              {"/v1/agents/nas/pause", `{"for_seconds": 99999999999}`, 422},
		"drain, no deadline":    {"/v1/agents/nas/drain", `{}`, 422},
		"drain, negative":       {"/v1/agents/nas/drain", `{"deadline_seconds": -1}`, 422},
		"drain, unknown member": {"/v1/agents/nas/drain", `{"deadline_seconds": 1, "now": true}`, 422},
		"drain, long message":   {"/v1/agents/nas/drain", `{"deadline_seconds": 1, "message": "` + strings.Repeat("x", 201) + `"}`, 422},
	} {
		t.Run(name, func(t *testing.T) {
			if _, p := s.agent(tell(c.path, c.body), c.status); p.Detail == "" || len(p.Errors) == 0 {
				t.Errorf("problem = %+v", p)
			}
		})
	}
	if v, _ := s.agent(request{path: "/v1/agents/nas"}, 200); v.State != "ready" {
		t.Errorf("what was refused has an effect: %+v", v)
	}
}

func TestBreakers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.beat("nas", "infra")
	s.beat("pi", "infra")
	data, err := json.Marshal(map[string]any{"v": 1, "failures": 5, "reason": "lost it", "breaker": map[string]any{
		"state": 2, "generation": 1, "buckets": []any{map[string]any{}}, "expiry": time.Now().Add(time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := s.Bucket(t.Context(), "chiffon_state")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), "breaker.nas", data); err != nil {
		t.Fatal(err)
	}
	list := func() (states []string) {
		var l api.BreakerList
		if a := s.do(request{path: "/v1/breakers"}); json.Unmarshal(a.body, &l) != nil || len(l.Breakers) != 2 {
			t.Fatalf("breakers: %d %s", a.status, a.body)
		}
		for _, b := range l.Breakers {
			states = append(states, b.AgentID+" "+b.State)
		}
		return states
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); strings.Join(list(), ", ") != "nas open, pi closed"; <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("breakers: %v", list())
		}
	}
	v, _ := s.agent(request{path: "/v1/agents/nas"}, 200)
	if v.State != "paused" || v.Breaker == nil || v.Breaker.State != "open" || v.PausedUntil == nil || !strings.Contains(v.Detail, "lost it") {
		t.Errorf("an agent behind an open breaker: %+v", v)
	}
	if v, _ := s.agent(request{path: "/v1/agents/pi"}, 200); v.Breaker != nil || v.State != "ready" {
		t.Errorf("another agent: %+v", v)
	}
	if a := s.do(tell("/v1/breakers/nas/reset", "")); a.status != 200 || !strings.Contains(string(a.body), `"closed"`) {
		t.Errorf("reset: %d %s", a.status, a.body)
	}
	if v, _ := s.agent(request{path: "/v1/agents/nas"}, 200); v.State != "ready" || v.Breaker != nil {
		t.Errorf("after the reset: %+v", v)
	}
}

// An agent that has said neither its state nor its work types is ready, not nothing.
func TestAgentThatSaysLittle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.agents.Heard(message.Heartbeat{AgentID: "nas", AgentType: "infra", Instance: "x", Boot: 1}, time.Now())
	if v, _ := s.agent(request{path: "/v1/agents/" + string(subject.AgentID("nas"))}, 200); v.State != "ready" {
		t.Errorf("state = %q", v.State)
	}
}
