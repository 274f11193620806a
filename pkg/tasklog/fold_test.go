package tasklog

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

var zero time.Time

// same fails unless a void entry has changed nothing but what it may.
func same(t *testing.T, before, after State, e Entry) {
	t.Helper()
	want := before
	want.TailSeq, want.Void = e.Seq, before.Void+1
	if before.Phase == PhaseNone && e.Subject.Verb == "request" {
		if after.Stray == nil {
			t.Errorf("a void request on an empty log is no stray")
		}
		want.Stray = after.Stray
	}
	if !reflect.DeepEqual(after, want) {
		t.Errorf("void %s: state is %+v, want %+v", e.Kind, after, want)
	}
}

// Any entries in any order, forged ones too: whatever the log, it has one end at most and nothing valid behind it (6.1),
// as many executions as `started` entries, at most N of them (6.3), and void entries change nothing but the tail.
func TestInvariantsOfAnyLog(t *testing.T) {
	t.Parallel()
	list, by := wants(), []writer{
		orchestrator, orchestrator, orchestrator, orchestrator, holder, holder, holder, starter, starter,
		{"web-1", "infra", 0, 8}, {"db-2", "infra", 1, 3}, {"db-2", "infra", 0, 3}, {"desk-3", "desktop", 1, 3}, {subject.Orchestrator, subject.Orchestrator, 1, 0},
	}
	ended, most := 0, 0
	for seed := range uint64(400) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var s State
		var entries []Entry
		ends, starts := 0, 0
		for range 50 {
			w, who := list[rnd.IntN(len(list))], by[rnd.IntN(len(by))]
			if rnd.IntN(2) == 0 { // entries that lead on are rare among all of them
				lead := rnd.IntN(4)
				w = []want{{kind: Submitted}, {kind: Queued}, {kind: Started, attempts: 1 + rnd.IntN(4)}, {kind: AttemptFailed, code: 5001, silent: true}}[lead]
				who = []writer{orchestrator, orchestrator, starter, orchestrator}[lead]
			}
			if w.kind.IsRequest() {
				who = orchestrator
			}
			tail := s.TailSeq
			if rnd.IntN(8) == 0 {
				tail += uint64(rnd.IntN(3)) // no expectation of the broker's was behind it
			}
			e := stored(w.draft(t, who, s.Attempt, tail), s.TailSeq+1+uint64(rnd.IntN(3)))
			entries = append(entries, e)
			next, err := s.Next(e)
			switch {
			case err != nil:
				same(t, s, next, e)
			case s.Phase == PhaseEnded, e.Expect != s.TailSeq && (s.TailSeq != 0 || e.Kind != Submitted && e.Kind != Held):
				t.Fatalf("seed %d: %s counts in %+v", seed, e.Kind, s)
			case e.Kind.End():
				ends++
			case e.Kind == Started:
				starts++
			}
			if s.Allowed != 0 && next.Allowed != s.Allowed {
				t.Fatalf("seed %d: allowed becomes %d, was %d", seed, next.Allowed, s.Allowed)
			}
			s = next
		}
		if ends > 1 || (ends == 1) != (s.Phase == PhaseEnded) || starts != s.Attempt || s.Attempt > s.Allowed {
			t.Fatalf("seed %d: %d ends and %d starts in %+v", seed, ends, starts, s)
		}
		if got := Fold(entries); !reflect.DeepEqual(got, s) {
			t.Fatalf("seed %d: Fold gives %+v, step by step %+v", seed, got, s)
		}
		ended, most = ended+ends, max(most, starts)
	}
	if ended < 200 || most < 3 {
		t.Errorf("%d logs ended, %d starts at most: the entries lead nowhere", ended, most)
	}
}

func TestTheFirstStartFixesN(t *testing.T) {
	t.Parallel()
	var l log
	l.add(t, want{kind: Submitted}, orchestrator)
	l.add(t, want{kind: Started, attempts: 2}, starter)
	l.add(t, want{kind: AttemptFailed, code: 5001}, holder)
	l.add(t, want{kind: Queued}, orchestrator)
	l.add(t, want{kind: Started, attempts: 9}, starter)
	if l.state.Allowed != 2 {
		t.Errorf("allowed is %d, want 2", l.state.Allowed)
	}
	if err := l.try(t, want{kind: AttemptFailed, code: 5001}, holder); err == nil {
		t.Error("a third attempt is promised")
	}
}

func TestStateKeepsWhatEntriesSay(t *testing.T) {
	t.Parallel()
	var l log
	l.add(t, want{kind: Held}, orchestrator)
	if l.state.Hold == nil || l.state.Hold.Reason != "placement" || l.state.Target != subject.Held {
		t.Errorf("held: %+v", l.state)
	}
	l.add(t, want{kind: Queued, target: "web-1"}, orchestrator)
	if s := l.state; s.Hold != nil || s.Target != "web-1" || s.RequestSeq != 2*stride || s.Type != "infra" || s.Priority != subject.Normal {
		t.Errorf("queued: %+v", s)
	}
	l.add(t, want{kind: Started}, starter)
	if s := l.state; s.Holder != "web-1" || s.Boot != 7 || s.Attempt != 1 || s.StartSeq != 3*stride || !s.Mine("web-1", 1, 7) || s.Mine("web-1", 1, 8) {
		t.Errorf("started: %+v", s)
	}
	l.add(t, want{kind: AttemptFailed, code: 5001, silent: true}, orchestrator)
	if s := l.state; !s.Silent || s.Code != 5001 || !s.RetryAt.Equal(time.Unix(4*stride, 0)) || s.Holder != "web-1" {
		t.Errorf("silent: %+v", s)
	}
	l.add(t, want{kind: Queued}, orchestrator)
	l.add(t, want{kind: Started}, writer{"db-2", "infra", 1, 3})
	if s := l.state; s.Silent || s.Holder != "db-2" || s.Attempt != 2 || s.Mine("web-1", 1, 7) {
		t.Errorf("started again: %+v", s)
	}
	l.add(t, want{kind: CancelRequested}, orchestrator)
	if s := l.state; s.Cancel == nil || s.Cancel.By != "me" || s.Holder != "db-2" {
		t.Errorf("cancelling: %+v", s)
	}
}

// The ids are promised to stay the same over versions: a repeated submission has to meet its own log.
func TestDerivedIDs(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"2f59a16c-5b51-8768-b313-c936888f5d7a": string(TaskID("admin", order)),
		"76651a8f-0cb7-8602-a638-74f8b84240a7": string(TaskID("", order)),
		"27abd349-b711-8838-8f74-93ded5c3d4d7": string(RequestID("admin", "nightly-2026-11-21")),
	} {
		if got != want {
			t.Errorf("id is %s, want %s", got, want)
		}
	}
	seen := map[string]bool{}
	for _, id := range []string{
		string(TaskID("a", "bc")), string(TaskID("ab", "c")), string(RequestID("a", "bc")), string(TaskID("", "abc")),
	} {
		if seen[id] {
			t.Errorf("%s is the id of two", id)
		}
		seen[id] = true
		if _, err := message.ParseUUID(id); err != nil || id[14] != '8' || !slices.Contains([]byte("89ab"), id[19]) {
			t.Errorf("%s is no UUID of version 8 (%v)", id, err)
		}
	}
}
