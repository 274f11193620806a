package intake_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"chiffon/agentrunner/intake"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/tasklog"
)

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
