package dispatch

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

func TestRuleSubmitAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	first := order(func(o *Order) { o.Request.Custom.Chiffon.On = map[string]string{} })
	id, created, err := s.d.Submit(t.Context(), first)
	if err != nil || !created {
		t.Fatalf("Submit = %s, %v, %v, want a new task", id, created, err)
	}
	if _, ok := s.ledger.Get(id); !ok {
		t.Error("the views do not have what was accepted")
	}
	for name, c := range map[string]struct {
		change   func(*Order)
		conflict bool
	}{
		"the same":                 {func(*Order) {}, false},
		"the same, in other words": {func(o *Order) { o.Request.Payload.Parameters = json.RawMessage(`{ "depth":1}`) }, false},
		"the default, said aloud":  {func(o *Order) { o.Request.Custom.Chiffon = &message.Extension{Priority: "medium"} }, false},
		"another trace":            {func(o *Order) { o.Request.TraceID = message.NewUUID() }, false},
		"other parameters":         {func(o *Order) { o.Request.Payload.Parameters = json.RawMessage(`{"depth": 2}`) }, true},
		"another priority":         {func(o *Order) { o.Request.Custom.Chiffon = &message.Extension{Priority: "low"} }, true},
		"another work type":        {func(o *Order) { o.Request.Payload.WorkType = "other" }, true},
		"limits":                   {func(o *Order) { o.Request.Payload.Hints = &message.Hints{MaxMemoryMB: 1} }, true},
		"a time in the queue":      {func(o *Order) { o.QueueTimeout = time.Hour }, true},
	} {
		again := first // with the same message_id, as one who sends the same bytes again
		c.change(&again)
		got, created, err := s.d.Submit(t.Context(), again)
		if got != id || created || errors.Is(err, ErrConflict) != c.conflict || err != nil && !c.conflict {
			t.Errorf("%s: Submit = %s, %v, %v, want %s, conflict %v", name, got, created, err, id, c.conflict)
		}
	}
	other := first
	other.By = "somebody else"
	if got, created, err := s.d.Submit(t.Context(), other); err != nil || !created || got == id {
		t.Errorf("Submit by another = %s, %v, %v, want another task", got, created, err)
	}
}

// A request whose task has ended, however it did, is never executed again: it is that task still.
func TestRuleSubmitAgainAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	o := order()
	id, _, err := s.d.Submit(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	s.started(id, "a", 1, 1)
	s.ends(id)
	tail := s.state(id).TailSeq
	if got, created, err := s.d.Submit(t.Context(), o); err != nil || created || got != id {
		t.Errorf("Submit = %s, %v, %v, want %s as it was", got, created, err, id)
	}
	if st := s.state(id); st.TailSeq != tail || st.End != tasklog.Succeeded {
		t.Errorf("the log goes on to %d with %s, want nothing behind %d", st.TailSeq, st.End, tail)
	}
}

// Two numbers that are one float64 are two contents all the same.
func TestSubmitTellsLargeNumbersApart(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	o := order(func(o *Order) { o.Request.Payload.Parameters = json.RawMessage(`{"n": 9007199254740992}`) })
	if _, _, err := s.d.Submit(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Request.Payload.Parameters = json.RawMessage(`{"n": 9007199254740993}`)
	if _, _, err := s.d.Submit(t.Context(), o); !errors.Is(err, ErrConflict) {
		t.Errorf("Submit with another number = %v, want ErrConflict", err)
	}
}

func TestSubmitKeepsItsOwnID(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	own := subject.TaskID(message.NewUUID())
	if id := s.submit(func(o *Order) { o.Request.Payload.TaskID = own }); id != own {
		t.Errorf("Submit = %s, want %s", id, own)
	}
}

// Any agent may write below any task. That neither makes a task nor keeps one from being made.
func TestSubmitUnderSquattedID(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	own := subject.TaskID(message.NewUUID())
	s.put(subject.Event(own, "mallory"), "mine")
	if err := s.ledger.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.ledger.Get(own); ok {
		t.Errorf("a void entry made the task %+v", got)
	}
	if _, err := s.d.Cancel(t.Context(), own, message.Cancel{}); !errors.Is(err, ErrUnknown) {
		t.Errorf("Cancel = %v, want ErrUnknown", err)
	}
	s.submit(func(o *Order) { o.Request.Payload.TaskID = own })
	if st := s.state(own); st.Phase != tasklog.PhaseQueued || st.Void != 1 {
		t.Errorf("state = %+v, want queued with one void entry", st)
	}
}

func TestSubmitOverARequestPutByHand(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	own := subject.TaskID(message.NewUUID())
	s.put(subject.Request(own, "infra", subject.Any, subject.Normal), `{"type": "work_request"}`)
	_, created, err := s.d.Submit(t.Context(), order(func(o *Order) { o.Request.Payload.TaskID = own }))
	if created || !errors.Is(err, ErrConflict) {
		t.Errorf("Submit = %v, %v, want ErrConflict", created, err)
	}
}

func TestSubmitTakesNothingThatEntriesSay(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	id := s.submit(func(o *Order) {
		o.Request.Custom.Chiffon = &message.Extension{
			Name: "n", SubmittedBy: "root", Attempts: 99, Digest: "x", Gone: true, Hold: &message.Hold{Reason: "approval"}, Cancel: &message.Cancel{},
		}
	})
	log, err := s.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	x := log[0].Message.Custom.Chiffon
	if x.Name != "n" || x.SubmittedBy != "admin" || x.Attempts != 0 || x.Digest == "x" || x.Gone || x.Hold != nil || x.Cancel != nil {
		t.Errorf("stored extension = %+v", x)
	}
}

func TestSubmitRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t, brisk)
	s.beat("a", 1)
	s.beat("d", 1, func(hb *message.Heartbeat) { hb.AgentType = "desktop" })
	x := func(f func(*message.Extension)) func(*Order) { return func(o *Order) { f(o.Request.Custom.Chiffon) } }
	many := map[string]string{}
	for i := range 65 {
		many[strings.Repeat("k", i+1)] = ""
	}
	for name, c := range map[string]struct {
		change func(*Order)
		code   fault.Code
		field  string
	}{
		"priority":              {x(func(x *message.Extension) { x.Priority = "asap" }), 5003, "x_custom_fields.chiffon.priority"},
		"agent of another type": {x(func(x *message.Extension) { x.Agent = "d" }), 5003, "x_custom_fields.chiffon.agent"},
		"agent that is no word": {x(func(x *message.Extension) { x.Agent = "A" }), 5003, "x_custom_fields.chiffon.agent"},
		"label with =":          {x(func(x *message.Extension) { x.Labels = map[string]string{"a=b": "c"} }), 5003, "x_custom_fields.chiffon.labels"},
		"label without a key":   {x(func(x *message.Extension) { x.On = map[string]string{"": "c"} }), 5003, "x_custom_fields.chiffon.on"},
		"label that rings":      {x(func(x *message.Extension) { x.Labels = map[string]string{"a": "\a"} }), 5003, "x_custom_fields.chiffon.labels"},
		"too many labels":       {x(func(x *message.Extension) { x.Labels = many }), 5003, "x_custom_fields.chiffon.labels"},
		"empty capability":      {x(func(x *message.Extension) { x.Needs = []string{""} }), 5003, "x_custom_fields.chiffon.needs"},
		"agent type":            {func(o *Order) { o.Request.ToAgent = subject.Orchestrator }, 5003, "to_agent"},
		"parameter":             {func(o *Order) { o.Request.Payload.Parameters = json.RawMessage(`{"depth": "x"}`) }, 5003, "payload.parameters.depth"},
		"unknown parameter":     {func(o *Order) { o.Request.Payload.Parameters = json.RawMessage(`{"deep": 1}`) }, 5003, "payload.parameters.deep"},
		"hints":                 {func(o *Order) { o.Request.Payload.Hints = &message.Hints{MaxDurationSeconds: -1} }, 5003, "payload.hints.max_duration_seconds"},
		"unknown work type":     {func(o *Order) { o.Request.Payload.WorkType = "dance" }, 5006, ""},
		"too large": {func(o *Order) {
			o.Request.ToAgent = "code" // of which no schema is known
			o.Request.Payload.Parameters = json.RawMessage(`{"x": "` + strings.Repeat("x", message.MaxSize-2_000) + `"}`)
		}, 5003, ""},
	} {
		_, _, err := s.d.Submit(t.Context(), order(c.change))
		flt, ok := errors.AsType[*fault.Fault](err)
		if !ok || flt.Code != c.code || flt.Field() != c.field {
			t.Errorf("%s: Submit = %v, want %d about %q", name, err, c.code, c.field)
			continue
		}
		if got, _ := flt.Context["supported_types"].([]string); c.code == fault.UnsupportedWorkType && !slices.Equal(got, []string{"survey"}) {
			t.Errorf("%s: supported_types = %v", name, got)
		}
	}
	// Nothing is known of these: they are accepted, and wait.
	s.submit(func(o *Order) { o.Request.ToAgent = "code" })
	s.submit(func(o *Order) { o.Request.Custom.Chiffon.Agent = "away" })
}
