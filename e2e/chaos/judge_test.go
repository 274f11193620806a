//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// How a view and the log may lag behind the witness before it counts.
const (
	judgeEvery = 300 * time.Millisecond
	judgeAfter = 3 * time.Second // an end is judged when everything about it must have been read
	wakingUp   = 500 * time.Millisecond
)

// judge reads log and witness as they grow, and judges each task that has ended, until ctx ends; then it judges all.
func (b *book) judge(ctx context.Context, c *broker.Client) {
	for pause(ctx, judgeEvery) {
		b.look(ctx, c, time.Now().Add(-judgeAfter))
	}
}

func (b *book) look(ctx context.Context, c *broker.Client, until time.Time) {
	if err := b.log(ctx, c); err != nil && ctx.Err() == nil {
		return // the broker is away: what is not read can't be judged
	}
	if err := b.witness(); err != nil {
		b.site.wrong("%v", err)
	}
	b.open = slices.DeleteFunc(b.open, func(st *story) bool {
		if st.end.IsZero() || st.end.After(until) {
			return false
		}
		st.judged = true
		b.ended++
		b.judged = append(b.judged, st)
		b.whole(st)
		return true
	})
	b.site.unsettled(len(b.open))
}

func (b *book) log(ctx context.Context, c *broker.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for m, err := range c.Range(ctx, subject.TasksStream, "chiffon.task.>", b.next) {
		if err != nil {
			return err
		}
		b.entry(m.Entry())
		if b.hear != nil {
			b.hear(m)
		}
		b.next = m.Seq + 1
	}
	return nil
}

// whole judges a task that has ended.
func (b *book) whole(st *story) {
	b.site.mu.Lock()
	sub := b.site.accepted[string(st.id)]
	shown := b.site.glances[st.id]
	b.site.glances[st.id] = glance{state: string(st.fold.State.End), end: st.end} // what is shown from now on has to be this
	b.site.mu.Unlock()
	state := st.fold.State
	b.longest = max(b.longest, st.end.Sub(st.lines[0].at))
	if sub == nil && !b.site.offered(st.id) {
		b.fail(st, "it was never submitted")
		return
	}
	if st.ends != 1 {
		b.fail(st, "it has %d valid ends", st.ends)
	}
	if len(st.starts) > max(state.Allowed, 0) {
		b.fail(st, "%d starts, and %d are allowed", len(st.starts), state.Allowed)
	}
	if len(st.runs) > len(st.starts) {
		b.fail(st, "%d executions, and %d starts", len(st.runs), len(st.starts))
	}
	if state.Allowed == 1 && len(st.runs) > 1 {
		b.fail(st, "work that must not be repeated was")
	}
	for _, x := range st.runs {
		b.entitled(st, x)
		b.afterEnd(st, x)
	}
	b.overlap(st)
	b.outcome(st)
	b.views(st, shown)
}

// views holds what the views have said of a task against its log.
func (b *book) views(st *story, g glance) {
	if g.state != "" && g.state != string(st.fold.State.End) {
		b.fail(st, "a view showed the end %s", g.state)
	}
	if g.attempt > 0 && !slices.ContainsFunc(st.starts, func(s start) bool { return s.attempt == g.attempt && s.agent == g.agent }) {
		b.fail(st, "a view showed attempt %d on %s", g.attempt, g.agent)
	}
}

// entitled finds the start that an execution rests on.
func (b *book) entitled(st *story, x *execution) {
	same := 0
	for _, other := range st.runs {
		if other.agent == x.agent && other.attempt == x.attempt {
			same++
		}
	}
	if same > 1 {
		b.fail(st, "attempt %d was executed %d times", x.attempt, same)
	}
	for _, s := range st.starts {
		if s.agent == x.agent && s.attempt == x.attempt {
			if x.begin.Before(s.at) {
				b.fail(st, "attempt %d began before its start was stored", x.attempt)
			}
			return
		}
	}
	b.fail(st, "attempt %d on %s has no start in the log", x.attempt, x.agent)
}

// afterEnd makes sure that nothing of a task runs when it has ended.
func (b *book) afterEnd(st *story, x *execution) {
	if x.said || !x.last.After(st.end) || b.site.excused(x.agent, st.end, x.last) {
		return
	}
	// Nobody knows what becomes of work that is not to be repeated and was given up.
	if s := st.fold.State; s.Allowed == 1 && s.End == tasklog.Error && st.endBy == subject.Orchestrator {
		return
	}
	b.fail(st, "attempt %d ran on %s until %v after the end", x.attempt, x.agent, x.last.Sub(st.end))
	x.said = true
}

// overlap finds two executions at a time.
func (b *book) overlap(st *story) {
	for i, older := range st.runs {
		for _, newer := range st.runs[i+1:] {
			if !newer.begin.Before(older.last) {
				continue
			}
			b.overlaps++
			if !b.site.excused(older.agent, newer.begin, older.last) {
				b.fail(st, "attempts %d and %d ran at the same time for %v", older.attempt, newer.attempt, older.last.Sub(newer.begin))
			}
		}
	}
}

// outcome holds what the end says against what the witness saw.
func (b *book) outcome(st *story) {
	var exit string
	for _, x := range st.runs {
		if x.attempt == st.fold.State.Attempt {
			exit = x.exit
		}
	}
	switch st.fold.State.End {
	case tasklog.Succeeded:
		if exit != "0" {
			b.fail(st, "it succeeded, and the witness saw the exit %q", exit)
		}
	case tasklog.Failed:
		if exit != "" && exit != strconv.Itoa(st.exit) {
			b.fail(st, "it failed with %d, and the witness saw the exit %q", st.exit, exit)
		}
	}
}

func (b *book) fail(st *story, format string, args ...any) {
	b.site.wrong("task %s: %s\n%s", st.id, fmt.Sprintf(format, args...), st.telling())
}

// excused reports whether an agent's work could not be ended by anybody at some time in between.
func (s *site) excused(agent string, from, to time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.excuses, func(e excuse) bool {
		return e.agent == agent && !e.from.After(to) && (e.to.IsZero() || !e.to.Add(wakingUp).Before(from))
	})
}

// excuse opens a time in which an agent's work cannot be ended; the returned function closes it.
func (s *site) excuse(agent string) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.excuses = append(s.excuses, excuse{agent: agent, from: time.Now()})
	i := len(s.excuses) - 1
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.excuses[i].to = time.Now()
	}
}

// newBook opens the witness's file.
func (s *site) newBook() *book {
	s.Helper()
	file, err := os.Open(s.witness)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { file.Close() })
	return &book{site: s, stories: map[subject.TaskID]*story{}, next: 1, file: file}
}

// connect reaches the broker, past the programs.
func (s *site) connect(ctx context.Context) *broker.Client {
	s.Helper()
	for {
		c, err := broker.Connect(broker.Config{URL: s.brokerURL, Name: "witness"})
		if err == nil {
			s.Cleanup(c.Close)
			return c
		}
		if !pause(ctx, 50*time.Millisecond) {
			s.Fatalf("the broker is not there: %v", err)
		}
	}
}

// offered reports whether a task may be there although nobody was told that it was accepted.
func (s *site) offered(id subject.TaskID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried[id]
}
