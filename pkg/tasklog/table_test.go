package tasklog

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

// A rule is one row of the table in docs/tasklog.md.
type rule struct {
	row   string
	phase string
	kinds []string
	agent bool
	when  [][]string // all of these, each by any of its words
	then  string
	used  bool
}

var quoted = regexp.MustCompile("`([^`]+)`")

func words(cell string) (list []string) {
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		list = append(list, m[1])
	}
	return list
}

// rules reads the table; words, the meanings that stand below it.
func rules(t *testing.T) (list []*rule, meanings []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/tasklog.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## 3. ")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cell := strings.Split(strings.TrimSpace(line), "|")
		switch {
		case len(cell) == 4:
			meanings = append(meanings, words(cell[1])...)
		case len(cell) == 7 && strings.Contains(cell[2], "`"):
			r := &rule{
				row: strings.TrimSpace(line), phase: strings.TrimSpace(cell[1]), kinds: words(cell[2]),
				agent: strings.TrimSpace(cell[3]) == "agent", then: strings.TrimSpace(cell[5]),
			}
			for clause := range strings.SplitSeq(cell[4], ",") {
				if w := words(clause); len(w) > 0 {
					r.when = append(r.when, w)
				}
			}
			list = append(list, r)
		}
	}
	if len(list) < 20 || len(meanings) < 10 {
		t.Fatalf("docs/tasklog.md, section 3: %d rules and %d words, the table is not read right", len(list), len(meanings))
	}
	return list, meanings
}

// A situation is a task's state in the words of the document, written down by hand, with the log that leads there.
type situation struct {
	phase   string
	n, N    int // N is 0 until something has started
	holder  writer
	target  string
	silent  bool
	paused  bool
	deaths  int
	forced  bool
	stray   fault.Code
	history func(t *testing.T, l *log)
}

func situations() map[string]situation {
	submit := func(t *testing.T, l *log) { t.Helper(); l.add(t, want{kind: Submitted}, orchestrator) }
	start := func(attempts int) func(*testing.T, *log) {
		return func(t *testing.T, l *log) {
			t.Helper()
			submit(t, l)
			l.add(t, want{kind: Started, attempts: attempts}, starter)
		}
	}
	then := func(before func(*testing.T, *log), by writer, wants ...want) func(*testing.T, *log) {
		return func(t *testing.T, l *log) {
			t.Helper()
			before(t, l)
			for _, w := range wants {
				by := by
				if w.kind.IsRequest() {
					by = orchestrator
				} else if w.kind == Started {
					by = starter
				}
				l.add(t, w, by)
			}
		}
	}
	stray := func(t *testing.T, l *log) {
		t.Helper()
		e := Read(subject.Request(task, "infra", subject.Any, subject.Normal), nil, []byte(`{"protocol_version": "9.9"}`), stride, zero)
		if l.put(e) == nil {
			t.Fatal("a request without headers counts")
		}
	}
	event := func(t *testing.T, l *log) {
		t.Helper()
		if l.try(t, want{kind: Succeeded}, holder) == nil {
			t.Fatal("a task that was never submitted has succeeded")
		}
	}
	own := want{kind: AttemptFailed, code: fault.AgentUnavailable}
	silent := want{kind: AttemptFailed, code: fault.Timeout, silent: true}
	gone := want{kind: AttemptFailed, code: fault.AgentUnavailable, gone: true}
	cancel := want{kind: CancelRequested}
	force := want{kind: CancelRequested, force: true}
	again, begin := want{kind: Queued}, want{kind: Started, attempts: 9} // the number counts for nothing here
	return map[string]situation{
		"none":                          {phase: "none", history: func(*testing.T, *log) {}},
		"none, with a void event":       {phase: "none", history: event},
		"none, with a stray":            {phase: "none", stray: fault.UnsupportedWorkType, history: stray},
		"held":                          {phase: "held", target: subject.Held, history: func(t *testing.T, l *log) { l.add(t, want{kind: Held}, orchestrator) }},
		"queued for any":                {phase: "queued", target: subject.Any, history: submit},
		"queued after a stray":          {phase: "queued", target: subject.Any, history: func(t *testing.T, l *log) { stray(t, l); submit(t, l) }},
		"queued for one":                {phase: "queued", target: "web-1", history: func(t *testing.T, l *log) { l.add(t, want{kind: Submitted, target: "web-1"}, orchestrator) }},
		"queued for another":            {phase: "queued", target: "db-2", history: func(t *testing.T, l *log) { l.add(t, want{kind: Submitted, target: "db-2"}, orchestrator) }},
		"queued, void behind":           {phase: "queued", target: subject.Any, history: func(t *testing.T, l *log) { submit(t, l); event(t, l) }},
		"held again":                    {phase: "held", target: subject.Held, n: 1, N: 4, holder: holder, history: then(start(4), holder, own, again, want{kind: Held})},
		"queued after a failure":        {phase: "queued", target: subject.Any, n: 1, N: 4, holder: holder, history: then(start(4), holder, own, again)},
		"queued after silence":          {phase: "queued", target: subject.Any, n: 1, N: 4, holder: holder, silent: true, history: then(start(4), orchestrator, silent, again)},
		"running, 1 of 4":               {phase: "running", target: subject.Any, n: 1, N: 4, holder: holder, history: start(4)},
		"running, 1 of 1":               {phase: "running", target: subject.Any, n: 1, N: 1, holder: holder, history: start(1)},
		"running, 2 of 2":               {phase: "running", target: subject.Any, n: 2, N: 2, holder: holder, history: then(start(2), orchestrator, silent, again, begin)},
		"running, void behind":          {phase: "running", target: subject.Any, n: 1, N: 4, holder: holder, history: func(t *testing.T, l *log) { start(4)(t, l); stray(t, l) }},
		"paused":                        {phase: "running", target: subject.Any, n: 1, N: 4, holder: holder, paused: true, history: then(start(4), holder, want{kind: Paused})},
		"resumed":                       {phase: "running", target: subject.Any, n: 1, N: 4, holder: holder, history: then(start(4), holder, want{kind: Paused}, want{kind: Resumed})},
		"failed by its own word":        {phase: "failed", target: subject.Any, n: 1, N: 4, holder: holder, history: then(start(4), holder, own)},
		"failed while paused":           {phase: "failed", target: subject.Any, n: 1, N: 4, holder: holder, history: then(start(4), holder, want{kind: Paused}, own)},
		"failed by silence":             {phase: "failed", target: subject.Any, n: 1, N: 4, holder: holder, silent: true, history: then(start(4), orchestrator, silent)},
		"failed by silence, 2 of 2":     {phase: "failed", target: subject.Any, n: 2, N: 2, holder: holder, silent: true, history: then(start(2), orchestrator, silent, again, begin, silent)},
		"failed by its runner's death":  {phase: "failed", target: subject.Any, n: 1, N: 4, holder: holder, deaths: 1, history: then(start(4), orchestrator, gone)},
		"failed three times by death":   {phase: "failed", target: subject.Any, n: 3, N: 4, holder: holder, deaths: 3, history: then(start(4), orchestrator, gone, again, begin, gone, again, begin, gone)},
		"cancelling, 1 of 4":            {phase: "cancelling", target: subject.Any, n: 1, N: 4, holder: holder, history: then(start(4), orchestrator, cancel)},
		"cancelling, 1 of 1":            {phase: "cancelling", target: subject.Any, n: 1, N: 1, holder: holder, history: then(start(1), orchestrator, cancel)},
		"cancelling by force, 1 of 1":   {phase: "cancelling", target: subject.Any, n: 1, N: 1, holder: holder, forced: true, history: then(start(1), orchestrator, force)},
		"cancelling, force was added":   {phase: "cancelling", target: subject.Any, n: 1, N: 4, holder: holder, forced: true, history: then(start(4), orchestrator, cancel, force)},
		"cancelling behind silence":     {phase: "cancelling", target: subject.Any, n: 1, N: 4, holder: holder, silent: true, history: then(start(4), orchestrator, silent, cancel)},
		"cancelling, after silence":     {phase: "cancelling", target: subject.Any, n: 2, N: 4, holder: holder, history: then(start(4), orchestrator, silent, again, begin, cancel)},
		"succeeded":                     {phase: "ended", target: subject.Any, n: 1, N: 4, holder: holder, history: then(start(4), holder, want{kind: Succeeded})},
		"succeeded after silence":       {phase: "ended", target: subject.Any, n: 1, N: 4, holder: holder, silent: true, history: then(then(start(4), orchestrator, silent, again), holder, want{kind: Succeeded})},
		"failed for good":               {phase: "ended", target: subject.Any, n: 1, N: 1, holder: holder, history: then(start(1), holder, want{kind: Failed})},
		"cancelled":                     {phase: "ended", target: subject.Any, history: then(submit, orchestrator, want{kind: Cancelled})},
		"ended by an error":             {phase: "ended", target: subject.Any, n: 1, N: 4, holder: holder, history: then(start(4), holder, want{kind: Error, code: fault.InvalidMessage})},
		"ended by an error of the hand": {phase: "ended", stray: fault.UnsupportedWorkType, history: then(stray, orchestrator, want{kind: Error, code: fault.UnsupportedWorkType})},
	}
}

// wants is every kind, with whatever makes a difference in it.
func wants() (list []want) {
	for _, k := range Kinds {
		switch k {
		case Queued, Submitted:
			list = append(list, want{kind: k}, want{kind: k, target: "web-1"})
		case AttemptFailed, Error:
			for _, c := range fault.Codes {
				for mark := range 4 {
					list = append(list, want{kind: k, code: c, silent: mark&1 != 0, gone: mark&2 != 0})
				}
			}
		case CancelRequested:
			list = append(list, want{kind: k}, want{kind: k, force: true})
		case Cancelled:
			list = append(list, want{kind: k}, want{kind: k, gone: true})
		default:
			list = append(list, want{kind: k})
		}
	}
	return list
}

func writers() map[string]writer {
	return map[string]writer{
		"orchestrator":                        orchestrator,
		"orchestrator, of the next attempt":   {subject.Orchestrator, subject.Orchestrator, 1, 0},
		"orchestrator, of the attempt before": {subject.Orchestrator, subject.Orchestrator, -1, 0},
		"orchestrator with a boot":            {subject.Orchestrator, subject.Orchestrator, 0, 7},
		"holder":                              holder,
		"holder, next attempt":                starter,
		"holder, attempt after that":          {"web-1", "infra", 2, 7},
		"holder, attempt before":              {"web-1", "infra", -1, 7},
		"holder, later boot":                  {"web-1", "infra", 0, 8},
		"holder, earlier boot":                {"web-1", "infra", 0, 6},
		"holder, next attempt, later boot":    {"web-1", "infra", 1, 8},
		"holder, next attempt, no boot":       {"web-1", "infra", 1, 0},
		"holder, of another type":             {"web-1", "desktop", 0, 7},
		"holder, next attempt, other type":    {"web-1", "desktop", 1, 7},
		"another agent":                       {"db-2", "infra", 0, 7},
		"another agent, next attempt":         {"db-2", "infra", 1, 3},
		"agent of another type":               {"desk-3", "desktop", 0, 7},
		"agent of another type, next attempt": {"desk-3", "desktop", 1, 7},
	}
}

// holds says whether a word of the document is true.
func holds(t *testing.T, word string, s situation, w want, by writer) bool {
	t.Helper()
	left := s.N == 0 || s.n < s.N
	switch word {
	case "mine":
		return s.holder.id != "" && by.id == s.holder.id && by.attempt == 0 && by.boot == s.holder.boot
	case "addressed":
		return s.target == subject.Any || s.target == by.id
	case "of its type":
		return by.kind == "infra"
	case "next attempt":
		return by.attempt == 1
	case "has a boot":
		return by.boot != 0
	case "attempts left":
		return left
	case "no attempt left":
		return !left
	case "N > 1":
		return s.N > 1
	case "silent":
		return s.silent
	case "paused":
		return s.paused
	case "not paused":
		return !s.paused
	case "poison":
		return s.deaths >= 3
	case "not poison":
		return s.deaths < 3
	case "stray":
		return s.stray != 0
	case "code of the stray":
		return w.code == s.stray
	case "code is retried":
		return w.code == 5001 || w.code == 5002 || w.code == 5005
	case "5001":
		return w.code == 5001
	case "5002":
		return w.code == 5002
	case "5005":
		return w.code == 5005
	case "marked silent":
		return w.silent
	case "marked gone":
		return w.gone
	case "adds force":
		return w.force && !s.forced
	case "no mark":
		return !w.silent && !w.gone
	}
	t.Fatalf("docs/tasklog.md uses the word %q, which this test does not know", word)
	return false
}

// expected finds the row that allows an entry; nil when none does.
func expected(t *testing.T, table []*rule, s situation, w want, by writer) *rule {
	t.Helper()
	agent := by.id != subject.Orchestrator
	if !agent && (by.boot != 0 || max(s.n+by.attempt, 0) != s.n) {
		return nil
	}
	for _, r := range table {
		ok := r.phase == s.phase && r.agent == agent && slices.Contains(r.kinds, string(w.kind))
		for _, anyOf := range r.when {
			ok = ok && slices.ContainsFunc(anyOf, func(word string) bool { return holds(t, word, s, w, by) })
		}
		if ok {
			return r
		}
	}
	return nil
}

// Every state, every entry, every writer: what a row of the document allows is allowed and leads where the row says,
// everything else is refused and changes nothing.
func TestTableOfTheDocument(t *testing.T) {
	t.Parallel()
	table, meanings := rules(t)
	var used []string
	for _, r := range table {
		for _, anyOf := range r.when {
			used = append(used, anyOf...)
		}
	}
	for _, word := range append(used, meanings...) {
		if !slices.Contains(meanings, word) || !slices.Contains(used, word) {
			t.Errorf("docs/tasklog.md, section 3: %q is not both used and explained", word)
		}
	}
	var tries []try
	for _, w := range wants() {
		for who, by := range writers() {
			if w.kind.IsRequest() && by.id != subject.Orchestrator {
				continue // it stands on a request subject, whose writer is the orchestrator by definition
			}
			e := stored(w.draft(t, by, 0, 0), stride)
			if e.Err != nil {
				t.Fatalf("%s by %s cannot be read: %v", w.kind, who, e.Err)
			}
			tries = append(tries, try{w, who, by, e})
		}
	}
	all := situations()
	for name, s := range all {
		var l log
		s.history(t, &l)
		if got := l.state.Phase.String(); got != s.phase {
			t.Fatalf("%s: the log leads to %s, want %s", name, got, s.phase)
		}
		for _, c := range tries {
			compare(t, table, name, s, l.state, c)
		}
	}
	for _, r := range table {
		if !r.used {
			t.Errorf("no state, entry and writer make use of the row %s", r.row)
		}
	}
	if n := len(all) * len(tries); n < 20_000 {
		t.Errorf("only %d combinations were tried", n)
	}
}

// A try is an entry that somebody wants, as it would be stored.
type try struct {
	want want
	who  string
	by   writer
	e    Entry
}

// compare holds one try in one situation against the document.
func compare(t *testing.T, table []*rule, name string, s situation, state State, c try) {
	t.Helper()
	w, who, e := c.want, c.who, c.e
	e.Attempt, e.Expect, e.Seq = max(s.n+c.by.attempt, 0), state.TailSeq, state.TailSeq+stride
	rule := expected(t, table, s, w, c.by)
	err := Judge(state, e)
	next, void := state.Next(e)
	switch {
	case (err == nil) != (rule != nil):
		t.Errorf("%s: %+v by %s: Judge says %v, the document's row is %+v", name, w, who, err, rule)
	case (err == nil) != (void == nil):
		t.Errorf("%s: %+v by %s: Judge says %v, Next %v", name, w, who, err, void)
	case rule != nil:
		rule.used = true
		if got := next.Phase.String(); got != rule.then || rule.then == "ended" && next.End != w.kind {
			t.Errorf("%s: %+v by %s leads to %s %s, the document says %s", name, w, who, got, next.End, rule.row)
		}
	default:
		same(t, state, next, e)
	}
}

// What Read finds in the table of entries is what the code takes for them.
func TestKindsOfTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/tasklog.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z_]+)[^|]*\\| (request|event)")
	var kinds []Kind
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		k := Kind(m[1])
		kinds = append(kinds, k)
		if string(kindOfEnvelope(k)) != m[2] || k.IsRequest() != (m[3] == "request") {
			t.Errorf("docs/tasklog.md says %q", m[0])
		}
	}
	if !slices.Equal(kinds, Kinds) {
		t.Errorf("docs/tasklog.md has %q, the code %q", kinds, Kinds)
	}
	for _, h := range []string{HeaderEntry, HeaderEvent, HeaderAttempt, HeaderBoot, HeaderExpect, HeaderExpectSubject} {
		if !strings.Contains(string(text), "| `"+h+"` |") {
			t.Errorf("docs/tasklog.md does not know the header %s", h)
		}
	}
}
