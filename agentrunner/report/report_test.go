package report_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"chiffon/agentrunner/report"
	"chiffon/agentrunner/work"
	"chiffon/pkg/broker"
	"chiffon/pkg/chunk"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

func config(c *broker.Client) report.Config {
	return report.Config{
		Broker: c, Task: subject.TaskID(message.NewUUID()), Agent: "one", Type: "infra",
		Trace: message.NewUUID(), Request: message.NewUUID(), Attempt: 2, WorkType: "make",
	}
}

// end closes a reporter and returns what it said.
func end(t *testing.T, r *report.Reporter) report.Summary {
	t.Helper()
	sum := r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if n := r.Confirm(ctx); n != 0 {
		t.Fatalf("Confirm() = %d statuses missing", n)
	}
	return sum
}

// statuses reads what is in the stream about a task.
func statuses(t *testing.T, c *broker.Client, cfg report.Config) []message.Message[message.WorkStatus] {
	t.Helper()
	var all []message.Message[message.WorkStatus]
	for m, err := range c.Range(t.Context(), subject.StatusStream, subject.Status(cfg.Task, cfg.Agent), 1) {
		if err != nil {
			t.Fatal(err)
		}
		s, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			t.Fatalf("status %s: %v", m.Data, err)
		}
		all = append(all, s)
	}
	return all
}

func TestStepsAndOutput(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	cfg := config(c)
	cfg.Gather = time.Hour // only what must be sent is
	r := report.Start(cfg)
	r.Output([]byte("prelude\n"))
	r.Step(work.Step{Number: 1, Name: "build", Percent: new(10)})
	r.Output([]byte("one\n"))
	r.Output([]byte("two\n"))
	r.Step(work.Step{Number: 1, Name: "build", Percent: new(50), Done: true})
	r.Step(work.Step{Number: 2, Name: "test", Percent: new(40)})
	r.Output([]byte("\xff\xfe"))
	r.Step(work.Step{Number: 2, Name: "test", Percent: new(100), Done: true})
	sum := end(t, r)

	want := []struct {
		status        string
		number        int
		name, out, at string
		percent       int
	}{
		{"running", 0, "", "", "", -1},
		{"running", 1, "make", "prelude\n", "bytes 0-8 of 8", -1},
		{"running", 1, "build", "", "", 10},
		{"step_completed", 1, "build", "one\ntwo\n", "bytes 8-16 of 16", 50},
		{"running", 2, "test", "", "", 50},
		{"step_completed", 2, "test", "\xff\xfe", "bytes 0-2 of 2", 99},
	}
	got := statuses(t, c, cfg)
	if len(got) != len(want) || sum.Statuses != len(want) || sum.OutputBytes != 18 {
		t.Fatalf("%d statuses, summary %+v, want %d and 18 bytes", len(got), sum, len(want))
	}
	for i, w := range want {
		p := got[i].Payload
		if p.Step == nil { // the first one: nothing has been said yet
			p.Step = &message.Step{}
		}
		out, err := p.Step.Bytes()
		percent := -1
		if p.ProgressPercent != nil {
			percent = *p.ProgressPercent
		}
		if err != nil || p.Status != w.status || p.Step.Number != w.number || p.Step.Name != w.name ||
			string(out) != w.out || p.Step.OutputChunk != w.at || percent != w.percent {
			t.Errorf("status %d = %s %+v %d%%, want %+v", i, p.Status, *p.Step, percent, w)
		}
		if x := got[i].Custom; x.AgentID != "one" || x.Chiffon.Attempt != 2 {
			t.Errorf("status %d has %+v, want its agent and attempt", i, x)
		}
	}
}

func TestOutputComesWhole(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	cfg := config(c)
	r := report.Start(cfg)
	text := strings.Repeat("é — 日本語 and some ASCII\n", 40_000)
	for rest := []byte(text); len(rest) > 0; {
		n := min(4093, len(rest)) // cuts characters
		r.Output(rest[:n])
		rest = rest[n:]
	}
	sum := end(t, r)
	var got bytes.Buffer
	for i, m := range statuses(t, c, cfg) {
		if m.Payload.Step == nil {
			continue
		}
		p, err := m.Payload.Step.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if len(p) > chunk.Size || m.Payload.Step.OutputEncoding != "" {
			t.Errorf("status %d has %d bytes, encoding %q", i, len(p), m.Payload.Step.OutputEncoding)
		}
		got.Write(p)
	}
	if got.String() != text {
		t.Errorf("got %d bytes, want the %d written", got.Len(), len(text))
	}
	if sum.OutputBytes != int64(len(text)) || !strings.HasSuffix(text, string(sum.Tail)) ||
		len(sum.Tail) > report.TailSize || len(sum.Tail) < report.TailSize-3 {
		t.Errorf("summary: %d bytes, tail of %d", sum.OutputBytes, len(sum.Tail))
	}
}

// A follower waits for each status instead of for time to pass.
func TestOutputDoesNotWaitForMore(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	cfg := config(c)
	cfg.Silence = 50 * time.Millisecond
	r := report.Start(cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r.Output([]byte("hello"))
	heard, signs := false, 0
	for m, err := range c.Tail(ctx, subject.StatusStream, 1) {
		if err != nil {
			t.Fatal(err)
		}
		s, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if s.Payload.Step != nil && s.Payload.Step.Output == "hello" {
			heard = true
		} else {
			signs++
		}
		if heard && signs >= 3 { // the first status and two signs of life
			break
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("output heard: %v, statuses without output: %d", heard, signs)
	}
	end(t, r)
}

// broken takes nothing until it is mended.
type broken struct {
	*broker.Client
	mended atomic.Bool
	tries  chan struct{}
}

func (b *broken) Send(subj string, data []byte) (broker.Receipt, error) {
	if !b.mended.Load() {
		select {
		case b.tries <- struct{}{}:
		default:
		}
		return broker.Receipt{}, errors.New("no broker")
	}
	return b.Client.Send(subj, data)
}

func TestBrokerAway(t *testing.T) {
	t.Parallel()
	b := &broken{Client: natstest.Run(t), tries: make(chan struct{}, 1)}
	cfg := config(b.Client)
	cfg.Broker, cfg.Patience = b, time.Millisecond
	r := report.Start(cfg)
	block := make([]byte, chunk.Size)
	for range 30 { // more than are kept: the work goes on, what does not fit is counted
		r.Output(block)
	}
	<-b.tries
	sum := r.Close()
	b.mended.Store(true)
	if n := r.Confirm(t.Context()); n != 0 {
		t.Errorf("Confirm() = %d missing after the broker came back", n)
	}
	if got := len(statuses(t, b.Client, cfg)); got != sum.Statuses || sum.Dropped != 15*chunk.Size {
		t.Errorf("%d statuses stored, summary says %d statuses and %d bytes dropped", got, sum.Statuses, sum.Dropped)
	}
}

func TestConfirmSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := &broken{Client: natstest.Run(t), tries: make(chan struct{}, 1)}
	cfg := config(b.Client)
	cfg.Broker = b
	r := report.Start(cfg)
	r.Output([]byte("lost"))
	r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n := r.Confirm(ctx); n != 2 {
		t.Errorf("Confirm() = %d, want 2 statuses missing", n)
	}
}
