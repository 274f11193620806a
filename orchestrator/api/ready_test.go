package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/dispatch"
	"chiffon/pkg/fault"
)

// A server that cannot be asked everything says so, and why: while nothing new can be stored, and while nobody leads.
func TestReadyzSaysWhyNot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	full := errors.New("the disk is nearly full")
	s.readOnly.Store(&full)
	if got := s.do(request{path: "/readyz"}); got.status != http.StatusServiceUnavailable || !strings.Contains(string(got.body), full.Error()) {
		t.Errorf("readyz while nothing can be stored = %d %s, want 503 and why", got.status, got.body)
	}
	s.readOnly.Store(nil)
	if got := s.do(request{path: "/readyz"}); got.status != http.StatusOK {
		t.Errorf("readyz with room = %d %s", got.status, got.body)
	}
	s.unled()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-tick.C {
		got := s.do(request{path: "/readyz"})
		if got.status == http.StatusServiceUnavailable && strings.Contains(string(got.body), "no orchestrator leads") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("readyz without a leader = %d %s, want 503 and why", got.status, got.body)
		}
	}
}

// What is refused for want of room says when to try again.
func TestNoRoomForSubmissions(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *dispatch.Config) {
		c.Room = func() error { return fmt.Errorf("%w: 1 MiB is free", dispatch.ErrNoRoom) }
	})
	got := s.do(post(good))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" || !strings.Contains(got.problem.Detail, "what runs goes on") {
		t.Errorf("submission = %d %v %s, want 503 with Retry-After", got.status, got.header, got.body)
	}
}

// A refusal for want of a token has the protocol's code and context.
func TestNoTokenIsAFault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for token, status := range map[string]string{"": "missing", "Bearer " + strings.Repeat("x", 32): "refused"} {
		r := request{path: "/v1/tasks", stranger: true}
		if token != "" {
			r.header = map[string]string{"Authorization": token}
		}
		p := s.do(r).problem
		if p.ErrorCode != int(fault.AuthenticationFailed) || p.ErrorContext["token_status"] != status {
			t.Errorf("token %q: %d %v, want 5004 and %s", token, p.ErrorCode, p.ErrorContext, status)
		}
		for _, field := range fault.AuthenticationFailed.Context() {
			if _, ok := p.ErrorContext[field.Name]; !ok {
				t.Errorf("token %q: context %v lacks %s", token, p.ErrorContext, field.Name)
			}
		}
	}
}
