package intake_test

import (
	"slices"
	"strings"
	"testing"

	"chiffon/agentrunner/intake"
	"chiffon/pkg/chunk"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

func TestWorkFromRequestToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	id := w.submit(order{workType: "talk"})
	end := w.entry(id, tasklog.Succeeded)
	if got := w.kinds(id); !slices.Equal(got, []tasklog.Kind{tasklog.Submitted, tasklog.Started, tasklog.Succeeded}) {
		t.Errorf("log is %v", got)
	}
	if st := w.state(id); st.Void != 0 || st.Allowed != 4 || st.Holder != "one" {
		t.Errorf("state %+v", st)
	}
	out, err := end.Message.Result.Bytes()
	if err != nil || !strings.HasSuffix(string(out), "hello\n== 2/2 finish\nbye\n") {
		t.Errorf("result has output %q, %v", out, err)
	}
	all := w.statuses(id)
	x := end.Message.Custom
	if x.AgentID != "one" || x.OutputBytes != int64(len(out)) || x.Chiffon.StatusCount != len(all) {
		t.Errorf("end says %+v %+v, stored are %d statuses and %d bytes", x, x.Chiffon, len(all), len(out))
	}
	var done []string
	percent := -1
	for _, s := range all {
		if p := s.Payload.ProgressPercent; p != nil {
			if *p < percent || *p >= 100 {
				t.Errorf("percent goes from %d to %d", percent, *p)
			}
			percent = *p
		}
		if s.Payload.Status == message.StatusStepCompleted {
			done = append(done, s.Payload.Step.Name)
		}
	}
	if all[0].Payload.Status != message.StatusRunning || !slices.Equal(done, []string{"begin", "finish"}) {
		t.Errorf("first status %+v, steps completed %q", all[0].Payload, done)
	}
	if r := end.Message.Result.ResourcesUsed; r == nil || r.DurationSeconds < 1 {
		t.Errorf("resources used: %+v", r)
	}
}

func TestFailureIsAResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	id := w.submit(order{workType: "talk", params: `{"code": 3}`})
	end := w.entry(id, tasklog.Failed)
	if r := end.Message.Result; r.ExitCode != 3 || r.Status != message.ResultFailed {
		t.Errorf("result %+v", r)
	}
}

func TestLargeOutputComesInBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	id := w.submit(order{workType: "big"})
	end := w.entry(id, tasklog.Succeeded)
	var out chunk.Assembler
	for _, s := range w.statuses(id) {
		if s.Payload.Step == nil || s.Payload.Step.OutputChunk == "" {
			continue
		}
		p, err := s.Payload.Step.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		at, err := chunk.Parse(s.Payload.Step.OutputChunk)
		if err != nil {
			t.Fatal(err)
		}
		if len(p) > chunk.Size {
			t.Errorf("block %+v has %d bytes", at, len(p))
		}
		if err := out.Add(at, p); err != nil {
			t.Fatal(err)
		}
	}
	whole := strings.Repeat("x", 1_000_000)
	if got := out.Bytes(); string(got) != whole {
		t.Errorf("blocks hold %d bytes, want %d", len(got), len(whole))
	}
	if got := end.Message.Result.Output; got != whole[:256<<10] || end.Message.Custom.OutputBytes != 1_000_000 {
		t.Errorf("result has %d bytes of output and says %d", len(got), end.Message.Custom.OutputBytes)
	}
}

// What cannot be done at all begins no work, but its attempt is in the log, with the reason as its end.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	cases := map[string]struct {
		order order
		code  fault.Code
		field string
	}{
		"parameters that break the schema": {order{workType: "talk", params: `{"code": "x"}`}, fault.InvalidMessage, "payload.parameters.code"},
		"a submitter who is not allowed":   {order{workType: "private", by: "nobody"}, fault.AuthenticationFailed, ""},
	}
	for name, test := range cases {
		id := w.submit(test.order)
		end := w.entry(id, tasklog.Error)
		f := end.Message.Failure.Fault()
		if f.Code != test.code || f.Field() != test.field || end.Message.Custom.Chiffon.Begun {
			t.Errorf("%s: ended with %+v", name, f)
		}
		if st := w.state(id); st.Void != 0 {
			t.Errorf("%s: state %+v", name, st)
		}
	}
	if id := w.submit(order{workType: "private", by: "boss"}); w.entry(id, tasklog.Succeeded).Err != nil {
		t.Error("an allowed submitter is refused")
	}
}

// A work type that is not offered here stays in the queue for others, and does not stand in the way.
func TestUnknownWorkTypeIsHandedBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	unknown := w.submit(order{workType: "dance", priority: subject.Critical})
	w.entry(w.submit(order{workType: "talk"}), tasklog.Succeeded)
	w.eventually("the request is handed out, and back", func() bool { return w.waiting(subject.Critical).NumAckPending == 1 })
	if got := w.kinds(unknown); len(got) != 1 {
		t.Errorf("log of the unknown work is %v", got)
	}
}

func TestMalformedMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	id := subject.TaskID(message.NewUUID())
	for _, text := range []string{"", "garbage", `{"type":"work_request"}`} {
		if err := w.Publish(subject.Request(id, agentType, subject.Any, subject.High), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	w.entry(w.submit(order{workType: "talk", priority: subject.Low}), tasklog.Succeeded)
	w.settled(subject.High)
	if st := w.state(id); st.Phase != tasklog.PhaseNone || st.Void != 3 {
		t.Errorf("state of the malformed task: %+v", st)
	}
}

func TestPriorityIsStrict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, d := w.door(), w.door()
	held := w.submit(order{workType: "gate", params: first.params(), priority: subject.Low})
	w.agent("one")
	first.begun(1)
	for range 50 {
		w.submit(order{workType: "noop", priority: subject.Low})
	}
	critical := w.submit(order{workType: "gate", params: d.params(), priority: subject.Critical})
	d.open()
	first.open()
	var order []subject.TaskID
	w.until("three starts", func(e tasklog.Entry, _ tasklog.State) bool {
		if e.Kind == tasklog.Started {
			order = append(order, e.Subject.Task)
		}
		return len(order) == 3
	})
	if order[0] != held || order[1] != critical {
		t.Errorf("the critical task began as number %d", 1+slices.Index(order, critical))
	}
}

func TestConcurrencyOfAWorkType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one", func(c *intake.Config) { c.Slots = 3 })
	a, b := w.door(), w.door()
	w.submit(order{workType: "lone", params: a.params()})
	a.begun(1)
	second := w.submit(order{workType: "lone", params: b.params()})
	w.entry(w.submit(order{workType: "talk"}), tasklog.Succeeded)
	if got := w.kinds(second); len(got) != 1 {
		t.Errorf("log of the second is %v while the first runs", got)
	}
	b.open()
	a.open()
	w.entry(second, tasklog.Succeeded)
}

func TestTwoRunnersRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []subject.AgentID{"one", "two"} {
		w.agent(name, func(c *intake.Config) { c.Slots = 4 })
	}
	const n = 40
	for range n {
		w.submit(order{workType: "noop"})
	}
	ends, starts := 0, map[subject.TaskID]int{}
	w.until("all ends", func(e tasklog.Entry, st tasklog.State) bool {
		if e.Kind == tasklog.Started {
			starts[e.Subject.Task]++
		}
		if e.Kind.End() {
			ends++
		}
		if st.Void > 0 {
			t.Errorf("task %s has a void entry %s", e.Subject.Task, e.Kind)
		}
		return ends == n
	})
	for id, times := range starts {
		if times != 1 {
			t.Errorf("task %s was started %d times", id, times)
		}
	}
}
