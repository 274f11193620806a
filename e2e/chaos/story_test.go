//go:build chaos

package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A story is all that is known of one task: what its log says, and what the witness saw.
type story struct {
	id     subject.TaskID
	fold   tasklog.Reader
	lines  []line
	starts []start
	end    time.Time // zero while it has none
	ends   int       // valid ends
	endBy  string
	exit   int // as the end says
	runs   []*execution
	judged bool
}

// A line is one entry as a person reads it.
type line struct {
	seq  uint64
	at   time.Time
	text string
}

type start struct {
	at      time.Time
	agent   string
	attempt int
}

// An execution is one process that the witness saw begin, and all that came of it.
type execution struct {
	agent   string
	attempt int
	pid     string
	begin   time.Time
	last    time.Time // sign of life, of whomever
	exit    string    // how the process ended by itself; "" if it did not
	said    bool      // that it ran too long
}

// A book holds all stories. One goroutine has it.
type book struct {
	site    *site
	stories map[subject.TaskID]*story
	next    uint64 // sequence to read on from
	file    *os.File
	hear    func(broker.Msg)
	rest    []byte // of a line that was not whole yet
	open    []*story
	judged  []*story

	executions, ended, late, overlaps int
	longest                           time.Duration // from a task's first entry to its end
}

func (b *book) story(id subject.TaskID) *story {
	st := b.stories[id]
	if st == nil {
		st = &story{id: id}
		b.stories[id] = st
		b.open = append(b.open, st)
	}
	return st
}

// entry takes in one entry of a log.
func (b *book) entry(e tasklog.Entry) {
	st := b.story(e.Subject.Task)
	before := st.fold.State
	_, void := st.fold.Next(e)
	text := fmt.Sprintf("%s by %s, attempt %d, expects %d", e.Kind, e.Subject.Writer, e.Attempt, e.Expect)
	if e.Kind.IsRequest() {
		text = fmt.Sprintf("%s to %s, attempt %d, expects %d", e.Kind, e.Subject.Target, e.Attempt, e.Expect)
	}
	if e.Message.Failure != nil {
		text += ": " + e.Message.Failure.Fault().Error()
	}
	if void != nil {
		st.lines = append(st.lines, line{e.Seq, e.Time, text + " VOID: " + void.Error()})
		return
	}
	st.lines = append(st.lines, line{e.Seq, e.Time, text})
	switch {
	case e.Kind == tasklog.Started:
		st.starts = append(st.starts, start{e.Time, e.Subject.Writer, e.Attempt})
	case e.Kind.End():
		st.ends++
		st.end, st.endBy = e.Time, e.Subject.Writer
		if e.Message.Result != nil {
			st.exit = e.Message.Result.ExitCode
		}
		if before.Phase == tasklog.PhaseEnded {
			b.site.wrong("task %s has a second end, %s", st.id, text)
		}
	}
}

// witness reads what the witness has seen since.
func (b *book) witness() error {
	text, err := io.ReadAll(b.file)
	if err != nil {
		return err
	}
	text = append(b.rest, text...)
	whole := strings.LastIndexByte(string(text), '\n') + 1
	b.rest = slices.Clone(text[whole:])
	for s := bufio.NewScanner(strings.NewReader(string(text[:whole]))); s.Scan(); {
		if err := b.seen(strings.Fields(s.Text())); err != nil {
			return fmt.Errorf("witness says %q: %w", s.Text(), err)
		}
	}
	return nil
}

// seen takes in one line: wall clock, task, attempt, agent, pid, who, what.
func (b *book) seen(words []string) error {
	if len(words) < 7 {
		return errors.New("too few words")
	}
	ns, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return err
	}
	attempt, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	st, at := b.story(subject.TaskID(words[1])), time.Unix(0, ns)
	if words[6] == "begin" {
		b.executions++
		st.runs = append(st.runs, &execution{agent: words[3], attempt: attempt, pid: words[4], begin: at, last: at})
	}
	var x *execution
	for _, r := range st.runs { // the latest of this attempt; there should be one
		if r.attempt == attempt && r.agent == words[3] {
			x = r
		}
	}
	if x == nil {
		b.site.wrong("task %s: %s of attempt %d on %s without a beginning", st.id, words[5], attempt, words[3])
		return nil
	}
	if at.After(x.last) {
		x.last = at
	}
	if words[6] == "end" {
		x.exit = words[7]
	}
	if st.judged {
		b.afterEnd(st, x)
	}
	return nil
}

// telling is everything about a task, for people.
func (st *story) telling() string {
	var all []line
	all = append(all, st.lines...)
	for _, r := range st.runs {
		how := "ended by itself with " + r.exit
		if r.exit == "" {
			how = "last sign of life"
		}
		all = append(all, line{0, r.begin, fmt.Sprintf("  witness: attempt %d begins on %s, pid %s", r.attempt, r.agent, r.pid)},
			line{0, r.last, fmt.Sprintf("  witness: attempt %d on %s: %s", r.attempt, r.agent, how)})
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.at.Compare(b.at) })
	var text strings.Builder
	fmt.Fprintf(&text, "task %s, %s\n", st.id, st.fold.State.Phase)
	for _, l := range all {
		fmt.Fprintf(&text, "  %s %6d %s\n", clock(l.at), l.seq, l.text)
	}
	return text.String()
}
