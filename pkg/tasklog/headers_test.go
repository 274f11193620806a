package tasklog

import (
	"maps"
	"slices"
	"testing"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// 1: every entry of whatever kind carries the headers that the document lists, each once and none besides. Above all no
// Nats-Msg-Id: the broker would answer a hit as success, and store nothing.
func TestRuleHeadersOfAnEntry(t *testing.T) {
	t.Parallel()
	want := []string{HeaderAttempt, HeaderBoot, HeaderEntry, HeaderEvent, HeaderExpect, HeaderExpectSubject}
	slices.Sort(want)
	seen := map[Kind]bool{}
	for _, w := range wants() {
		by := orchestrator
		if !w.kind.IsRequest() {
			by = holder
		}
		d := w.draft(t, by, 1, 41)
		h := d.Header()
		if got := slices.Sorted(maps.Keys(h)); !slices.Equal(got, want) {
			t.Errorf("%s carries %v, want %v", w.kind, got, want)
		}
		for name, values := range h {
			if len(values) != 1 {
				t.Errorf("%s carries %s %d times", w.kind, name, len(values))
			}
		}
		if m, err := message.Read(d.Data); err != nil || h[HeaderEntry][0] != string(m.MessageID) {
			t.Errorf("%s: entry %s, message %s, %v, want one id", w.kind, h[HeaderEntry][0], m.MessageID, err)
		}
		if h[HeaderExpect][0] != "41" || h[HeaderExpectSubject][0] != subject.Task(d.Task) {
			t.Errorf("%s expects %s on %s", w.kind, h[HeaderExpect][0], h[HeaderExpectSubject][0])
		}
		seen[w.kind] = true
	}
	if len(seen) != len(Kinds) {
		t.Errorf("%d of %d kinds are tried", len(seen), len(Kinds))
	}
}
