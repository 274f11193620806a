package retry

import (
	"testing"
	"time"

	"chiffon/pkg/fault"
)

func TestAfter(t *testing.T) {
	t.Parallel()
	for attempt, want := range map[int]time.Duration{
		0: 0, 1: 0, 2: time.Second, 3: 2 * time.Second, 4: 4 * time.Second, 7: 32 * time.Second, 8: Longest, 9: Longest, 1 << 40: Longest,
	} {
		if got := After(attempt); got != want {
			t.Errorf("After(%d) = %v, want %v", attempt, got, want)
		}
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code             fault.Code
		attempt, allowed int
		delay            time.Duration
		ok               bool
	}{
		"first try failed":      {fault.Timeout, 1, 1 + Max, time.Second, true},
		"third retry is left":   {fault.AgentUnavailable, 3, 1 + Max, 4 * time.Second, true},
		"none is left":          {fault.ResourceLimitExceeded, 4, 1 + Max, 0, false},
		"may not be repeated":   {fault.Timeout, 1, 1, 0, false},
		"never retried":         {fault.InvalidMessage, 1, 1 + Max, 0, false},
		"not retried: login":    {fault.AuthenticationFailed, 1, 1 + Max, 0, false},
		"not retried: unknown":  {fault.UnsupportedWorkType, 1, 1 + Max, 0, false},
		"code without meaning":  {5042, 1, 1 + Max, 0, false},
		"refused before it ran": {fault.ResourceLimitExceeded, 0, 1, 0, true},
	} {
		if delay, ok := Due(c.code, c.attempt, c.allowed); delay != c.delay || ok != c.ok {
			t.Errorf("%s: Due(%d, %d, %d) = %v, %t, want %v, %t", name, c.code, c.attempt, c.allowed, delay, ok, c.delay, c.ok)
		}
	}
}
