package intake_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"chiffon/agentrunner/intake"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// junk puts entries that do not count on the log of a task.
func (w *world) junk(id subject.TaskID, n, size int) {
	w.Helper()
	data := bytes.Repeat([]byte("x"), size)
	for k := range n {
		last, err := w.Send(subject.Event(id, "vandal"), data)
		if err != nil {
			w.Fatal(err)
		}
		if k%100 == 99 || k == n-1 || size > 10_000 {
			if err := last.Wait(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// A log that does not fit one answer is folded page by page.
func TestJunkOnTheLog(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ count, size, page int }{
		"small pages": {5, 10, 1},
		"many":        {3000, 10, 512},
		"large":       {6, 900_000, 512},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.page = test.page
			id := w.submit(order{workType: "talk"})
			w.junk(id, test.count, test.size)
			w.agent("one")
			w.entry(id, tasklog.Succeeded)
			if st := w.state(id); st.Void != test.count || st.Attempt != 1 {
				t.Errorf("state %+v", st)
			}
		})
	}
}

// Junk that comes while the work runs does not keep its end from the log.
func TestJunkBeforeTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.page = 100
	w.agent("one")
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	w.junk(id, 1000, 10)
	d.open()
	w.entry(id, tasklog.Succeeded)
	if st := w.state(id); st.Void != 1000 || st.End != tasklog.Succeeded {
		t.Errorf("state %+v", st)
	}
}

// warnings collects what is logged at warn and above.
type warnings struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (v *warnings) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.Write(p)
}

func (v *warnings) lines(with string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for line := range bytes.Lines(v.text.Bytes()) {
		if bytes.Contains(line, []byte(with)) {
			n++
		}
	}
	return n
}

// An answer that does not come, or is a fault, or leads nowhere, is asked for again, and the operator hears of it once.
func TestLogIsNotTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	answers := [][]byte{}
	for _, r := range []broker.LogReply{
		{Error: new(message.FailureOf(fault.New(fault.AgentUnavailable, "not now")))},
		{Next: 1},
	} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, text)
	}
	var asked atomic.Int32
	w.answer = func() ([]byte, bool) {
		n := int(asked.Add(1))
		if n > len(answers) {
			return nil, false
		}
		return answers[n-1], true
	}
	id := w.submit(order{workType: "talk"})
	w.junk(id, 1, 10)
	var said warnings
	w.agent("one", func(c *intake.Config) {
		c.Log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	w.entry(id, tasklog.Succeeded)
	if n := said.lines("does not tell the log"); n != 1 {
		t.Errorf("it was said %d times, want once:\n%s", n, &said.text)
	}
	want := []tasklog.Kind{tasklog.Submitted, tasklog.Started, tasklog.Succeeded}
	if got := slices.DeleteFunc(w.kinds(id), func(k tasklog.Kind) bool { return k == "" }); !slices.Equal(got, want) {
		t.Errorf("log is %v, want %v", got, want)
	}
}
