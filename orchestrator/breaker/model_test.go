package breaker

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

// A model is a breaker as the protocol tells of it, in as few words as there are.
type model struct {
	state  gobreaker.State
	row    int // failures without a success between them
	voids  int
	voidAt time.Time
	lost   uint64 // the last failed attempt that was counted
	until  time.Time
}

func (m *model) fail(now time.Time) {
	m.row++
	if m.state == gobreaker.StateHalfOpen || m.row >= Failures || m.voids >= Voids {
		m.state, m.until, m.voids = gobreaker.StateOpen, now.Add(Cooldown), 0
	}
}

func (m *model) fact(k Kind, start, seq uint64, now time.Time) {
	if m.state != gobreaker.StateClosed {
		return
	}
	switch k {
	case Success:
		m.row = 0
	case Failure:
		if start >= m.lost {
			m.lost = seq
			m.fail(now)
		}
	case Void:
		if now.Sub(m.voidAt) > VoidTime {
			m.voids = 0
		}
		m.voids, m.voidAt = m.voids+1, now
		m.fail(now)
	}
}

// Every transition is the model's, over random schedules, with the record stored and read between any two steps.
func TestTransitionsAreTheModels(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	seen := map[string]int{}
	synctest.Test(t, func(t *testing.T) {
		for schedule := range schedules {
			var r record
			var m model
			var seq uint64
			var story strings.Builder
			for range 5 + random.IntN(25) {
				seq++
				now := time.Now()
				before := m.state
				switch what := random.IntN(12); {
				case what < 6:
					k := []Kind{Failure, Failure, Failure, Void, Success, Failure}[what]
					start := []uint64{seq, seq, uint64(random.IntN(int(seq))), 0, 0, 0}[what]
					story.WriteString(fmt.Sprintf(" fact %d", k))
					m.fact(k, start, seq, now)
					r = r.count(Cooldown, Fact{Kind: k, Reason: "r", Seq: seq, Start: start, At: now})
					r = r.count(Cooldown, Fact{Kind: Failure, Reason: "again", Seq: seq, Start: seq, At: now}) // counted once
				case what < 9:
					d := time.Duration(random.IntN(4)) * 7 * time.Second
					story.WriteString(" " + d.String())
					time.Sleep(d)
				case what == 9:
					time.Sleep(VoidTime + 1)
					story.WriteString(" long")
				case what == 10 && m.state == gobreaker.StateOpen && random.IntN(2) == 0: // the clock was set back: asked before its time
					story.WriteString(" probe")
					m.state = gobreaker.StateHalfOpen
					r = r.probe(Cooldown)
				case m.state == gobreaker.StateOpen && !now.Before(m.until):
					story.WriteString(" probe")
					m.state = gobreaker.StateHalfOpen
					r = r.probe(Cooldown)
				case m.state == gobreaker.StateHalfOpen && random.IntN(2) == 0:
					story.WriteString(" answer")
					m.state, m.row = gobreaker.StateClosed, 0
					r = r.succeed(Cooldown)
				case m.state == gobreaker.StateHalfOpen:
					story.WriteString(" silence")
					m.fail(now)
					r = r.fail(Cooldown, "silent")
				}
				r = stored(t, r)
				s := r.shared()
				if s.State != m.state || r.Failures != m.row || s.State == gobreaker.StateOpen && !s.Expiry.Equal(m.until) {
					t.Fatalf("seed %d, schedule %d:%s\nis %v until %v after %d failures, want %v until %v after %d",
						seed, schedule, story.String(), s.State, s.Expiry, r.Failures, m.state, m.until, m.row)
				}
				if v := r.view("a"); v.State != s.State.String() || (v.Until != nil) != (s.State == gobreaker.StateOpen) ||
					(v.Failures > 0) != (v.Reason != "") {
					t.Fatalf("seed %d, schedule %d:%s\nview %+v", seed, schedule, story.String(), v)
				}
				if before != m.state {
					seen[before.String()+" to "+m.state.String()]++
				}
			}
		}
	})
	for _, want := range []string{"closed to open", "open to half-open", "half-open to closed", "half-open to open"} {
		if seen[want] < schedules/100 {
			t.Errorf("seed %d: %s %d times only: %v", seed, want, seen[want], seen)
		}
	}
	t.Log(seen)
}

// stored is a record after it was stored and read.
func stored(t *testing.T, r record) (read record) {
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestWhatGobreakerDidNotWriteIsAClosedBreaker(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]string{"nothing": "", "no state": `{}`, "another type": `"x"`, "no buckets": `{"state":0,"buckets":[]}`} {
		r := record{Shared: json.RawMessage(shared)}
		for range Failures {
			if r.open() {
				t.Errorf("%s: open", name)
			}
			r = r.fail(Cooldown, "x")
		}
		if !r.open() {
			t.Errorf("%s: not open after %d failures", name, Failures)
		}
	}
}

func TestARunnerThatDiesWithFiveTasksHasFailedOnce(t *testing.T) {
	t.Parallel()
	var r record
	for seq := range uint64(Failures) {
		r = r.count(Cooldown, Fact{Kind: Failure, Reason: "died", Start: 1 + seq, Seq: 11 + seq, At: time.Now()})
	}
	if r.open() || r.Failures != 1 {
		t.Errorf("after five tasks in hand: open %v, %d failures", r.open(), r.Failures)
	}
	for seq := range uint64(Failures - 1) { // one after the other
		r = r.count(Cooldown, Fact{Kind: Failure, Reason: "died", Start: 20 + 2*seq, Seq: 21 + 2*seq, At: time.Now()})
	}
	if !r.open() || r.Failures != Failures {
		t.Errorf("after four more lives: open %v, %d failures", r.open(), r.Failures)
	}
}
