package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"chiffon/orchestrator/client"
)

// follow shows a task until its end: what happens as lines on stdout, on a terminal with a live line below them, then its output
// and how it ended. It returns the task as it ended; the error of an interruption says that the task goes on.
func (p *program) follow(ctx context.Context, c *client.Client, id string) (client.Task, error) {
	if p.json() {
		task, err := p.story(ctx, c, id, eventLines{p})
		return task, interrupted(err, short(id))
	}
	f := &follower{p: p}
	own := &sieve{teller: f}
	task, err := p.story(ctx, c, id, own)
	until := p.now()
	if task.EndedAt != nil {
		until = *task.EndedAt
	}
	f.settle(until)
	own.tell(p.talk)
	if err != nil {
		return task, interrupted(err, short(id))
	}
	return task, errors.Join(p.result(task), p.end(task))
}

// follower shows progress. In a pipe each line appears when it is known, with its time. On a terminal the latest line stays live, with
// percent and elapsed time, until the next one comes.
type follower struct {
	p        *program
	progress progress
	live     string    // the line that is not final yet
	step     bool      // it is about a step
	since    time.Time // when it began, by the event's clock
	frame    int
	drawn    bool
}

func (f *follower) event(e client.Event) error {
	if line := f.progress.apply(e); line != "" {
		f.line(line, e.Time, e.Kind == "status")
	}
	return nil
}

func (f *follower) note(text string) { f.line(visible(text), f.p.now(), false) }

func (f *follower) line(text string, at time.Time, step bool) {
	if !f.p.out.terminal {
		if step {
			text += f.percent()
		}
		f.p.out.say("%s  %s", at.UTC().Format(time.RFC3339), text)
		return
	}
	f.settle(at)
	f.live, f.step, f.since = text, step, at
	f.draw()
}

// settle makes the live line final; what it told of went on until then.
func (f *follower) settle(until time.Time) {
	if f.live == "" {
		return
	}
	f.erase()
	took := ""
	if f.step {
		took = f.p.out.paint(dim, "  "+span(until.Sub(f.since)))
	}
	f.p.out.say("  %s%s", f.live, took)
	f.live = ""
}

func (f *follower) tick() {
	if f.live != "" {
		f.draw()
	}
}

var spinner = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

func (f *follower) draw() {
	f.erase()
	mark := spinner[f.frame%len(spinner)]
	f.frame++
	from := f.since
	if !f.progress.begun.IsZero() {
		from = f.progress.begun
	}
	tail := f.percent() + "  " + span(f.p.now().Sub(from))
	room := f.p.out.width() - len(tail) - 3
	fmt.Fprint(f.p.out.w, f.p.out.paint(cyan, mark), " ", cut(f.live, room), f.p.out.paint(dim, tail))
	f.drawn = true
}

func (f *follower) erase() {
	if f.drawn {
		fmt.Fprint(f.p.out.w, "\r\x1b[K")
		f.drawn = false
	}
}

func (f *follower) percent() string {
	if f.progress.begun.IsZero() || f.progress.percent < 0 {
		return ""
	}
	return fmt.Sprintf("  %d%%", f.progress.percent)
}

// cut shortens a text to so many characters.
func cut(text string, room int) string {
	runes := []rune(text)
	if len(runes) <= max(room, 0) {
		return text
	}
	return string(runes[:max(room-1, 0)]) + "…"
}

// result shows the output that is kept in a task's result, if there is any.
func (p *program) result(t client.Task) error {
	if t.Result == nil || t.Result.Output == "" {
		return nil
	}
	data, err := resultBytes(t.Result)
	if err != nil {
		return fmt.Errorf("output of task %s: %w", t.TaskID, err)
	}
	if missing := t.Result.OutputBytes - int64(len(data)); missing > 0 {
		p.out.say("%s", p.out.paint(dim, fmt.Sprintf("… %s before this; see: orchestrator task logs %s", bytesOf(missing), visible(short(t.TaskID)))))
	}
	out := p.out.foreign()
	_, err = out.Write(data)
	if !strings.HasSuffix(string(data), "\n") {
		data = []byte("\n")
		_, err2 := out.Write(data)
		err = errors.Join(err, err2)
	}
	return errors.Join(err, out.Close())
}

// end says how a task ended.
func (p *program) end(t client.Task) error {
	text := outcome(t)
	if !p.out.terminal && t.EndedAt != nil {
		text = t.EndedAt.UTC().Format(time.RFC3339) + "  " + text
	}
	_, err := fmt.Fprintln(p.out.w, p.out.paint(stateColours[t.State], text))
	return err
}
