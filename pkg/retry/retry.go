// Package retry is the protocol's rule of when to try again. It does not know what is tried, and reads no clock.
package retry

import (
	"time"

	"chiffon/pkg/fault"
)

// Max is how often a message is tried again after its first try.
const Max = 3

// Longest is the longest delay, which only more attempts than the protocol's four can reach.
const Longest = time.Minute

// After is the delay before an attempt: none before the first, then 1, 2 and 4 s, doubling up to Longest.
func After(attempt int) time.Duration {
	if attempt <= 1 {
		return 0
	}
	if attempt > 8 { // 64 s and more
		return Longest
	}
	return min(time.Second<<(attempt-2), Longest)
}

// Due says whether to try again after an attempt has failed with a code, of as many attempts as are allowed, and after
// which delay.
func Due(code fault.Code, attempt, allowed int) (delay time.Duration, ok bool) {
	if !code.Retryable() || attempt >= allowed {
		return 0, false
	}
	return After(attempt + 1), true
}
