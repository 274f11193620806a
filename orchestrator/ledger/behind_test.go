package ledger

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, slog.New(slog.DiscardHandler))
		expect := func(when string, entries uint64, since time.Duration) {
			t.Helper()
			if n, d := l.Behind(); n != entries || d != since {
				t.Errorf("%s it is %d behind, for %v; want %d, for %v", when, n, d, entries, since)
			}
		}
		see := func(seq uint64) { l.noteEnd(end{seq, time.Now()}) }
		l.begin(9)
		see(9)
		time.Sleep(time.Minute)
		expect("while it loads", 0, 0)
		l.seq, l.loaded = 9, true
		expect("at the end", 0, 0)
		see(12)
		time.Sleep(slow - 1)
		see(14)
		expect("for a moment", 0, 0)
		time.Sleep(time.Nanosecond)
		expect("when the first of them is old", 5, slow)
		l.seq = 12
		see(20)
		expect("when it moves on", 0, 0)
		time.Sleep(slow)
		expect("when it is stuck again", 8, slow)
		see(12)
		expect("when the rest was removed", 0, 0)
	})
}
