package tasklog

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	for _, w := range wants() {
		by := holder
		if w.kind.IsRequest() || w.kind == CancelRequested {
			by = orchestrator
		}
		d := w.draft(t, by, 2, 41)
		e := stored(d, 42)
		if e.Err != nil {
			t.Errorf("%+v: %v", w, e.Err)
			continue
		}
		if e.Kind != w.kind || e.ID != d.ID || e.Expect != 41 || e.Seq != 42 || e.Attempt != 2 || e.Boot != by.boot ||
			e.Subject.Task != task || e.Subject.Writer != by.id || !bytes.Equal(e.Data, d.Data) || string(e.Message.MessageID) != d.ID {
			t.Errorf("%+v is read as %+v", w, e)
		}
	}
	_, err := Write(Submitted, task, "x", message.New("orchestrator", "infra", trace, order, message.WorkRequest{}))
	if flt, ok := errors.AsType[*fault.Fault](err); !ok || flt.Code != fault.InvalidMessage {
		t.Errorf("a request without a task id: %v, want 5003", err)
	}
}

// edit changes one field of an envelope; the path is dotted, nil takes it away.
func edit(t *testing.T, data []byte, path string, value any) []byte {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	part, at := strings.Split(path, "."), m
	for _, p := range part[:len(part)-1] {
		next, ok := at[p].(map[string]any)
		if !ok {
			t.Fatalf("%s is not in %s", path, data)
		}
		at = next
	}
	if at[part[len(part)-1]] = value; value == nil {
		delete(at, part[len(part)-1])
	}
	out, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	started, result := want{kind: Started}, want{kind: Succeeded}
	request, cancel := want{kind: Queued}, want{kind: CancelRequested}
	other := subject.TaskID("0a8d1f6e-52c7-8e1b-9b1e-3f2a6c5d4e70")
	header := func(name string, value ...string) func(*testing.T, *Draft, map[string][]string) {
		return func(_ *testing.T, _ *Draft, h map[string][]string) { h[name] = value }
	}
	field := func(path string, value any) func(*testing.T, *Draft, map[string][]string) {
		return func(t *testing.T, d *Draft, _ map[string][]string) { t.Helper(); d.Data = edit(t, d.Data, path, value) }
	}
	on := func(subj string) func(*testing.T, *Draft, map[string][]string) {
		return func(_ *testing.T, d *Draft, _ map[string][]string) { d.Subject = subj }
	}
	for what, c := range map[string]struct {
		want   want
		by     writer
		change func(*testing.T, *Draft, map[string][]string)
		code   fault.Code
		field  string
	}{
		"no id":                   {started, starter, header(HeaderEntry), 5003, HeaderEntry},
		"two ids":                 {started, starter, header(HeaderEntry, "a", "b"), 5003, HeaderEntry},
		"another id":              {started, starter, header(HeaderEntry, "a"), 5003, "message_id"},
		"no kind":                 {started, starter, header(HeaderEvent), 5003, HeaderEvent},
		"unknown kind":            {started, starter, header(HeaderEvent, "begun"), 5003, HeaderEvent},
		"kind of another":         {started, starter, header(HeaderEvent, "succeeded"), 5003, "type"},
		"status of another":       {started, starter, header(HeaderEvent, "paused"), 5003, "payload.status"},
		"result of another":       {result, holder, header(HeaderEvent, "cancelled"), 5003, "payload.status"},
		"no expectation":          {started, starter, header(HeaderExpect), 5003, HeaderExpect},
		"expects a word":          {started, starter, header(HeaderExpect, "last"), 5003, HeaderExpect},
		"expects on itself":       {started, starter, header(HeaderExpectSubject, subject.Event(task, "web-1")), 5003, HeaderExpectSubject},
		"expects on another":      {started, starter, header(HeaderExpectSubject, subject.Task(other)), 5003, HeaderExpectSubject},
		"no attempt":              {started, starter, header(HeaderAttempt), 5003, HeaderAttempt},
		"attempt below zero":      {started, starter, header(HeaderAttempt, "-1"), 5003, HeaderAttempt},
		"no boot":                 {started, starter, header(HeaderBoot), 5003, HeaderBoot},
		"no subject of a log":     {started, starter, on("chiffon.mail.web-1.high"), 5003, ""},
		"status subject":          {started, starter, on(subject.Status(task, "web-1")), 5003, ""},
		"another task's subject":  {started, starter, on(subject.Event(other, "web-1")), 5003, HeaderExpectSubject},
		"another task's payload":  {started, starter, field("payload.task_id", string(other)), 5003, "payload.task_id"},
		"another agent's subject": {started, starter, on(subject.Event(task, "db-2")), 5004, ""},
		"the orchestrator's":      {started, starter, on(subject.Event(task, subject.Orchestrator)), 5004, ""},
		"orchestrator as agent":   {result, holder, field("from_agent", subject.Orchestrator), 5004, ""},
		"agent as orchestrator":   {cancel, orchestrator, field("from_agent", "infra"), 5004, ""},
		"orchestrator with an id": {cancel, orchestrator, field("x_custom_fields.agent_id", "web-1"), 5004, ""},
		"no sender":               {result, holder, field("x_custom_fields.agent_id", nil), 5004, ""},
		"started without N":       {started, starter, field("x_custom_fields.chiffon.attempts", nil), 5003, "x_custom_fields.chiffon.attempts"},
		"cancel without a word":   {cancel, orchestrator, field("x_custom_fields.chiffon.cancel", nil), 5003, "x_custom_fields.chiffon.cancel"},
		"other version":           {result, holder, field("protocol_version", "2.0"), 5006, ""},
		"request as an event":     {request, orchestrator, on(subject.Event(task, subject.Orchestrator)), 5003, HeaderEvent},
		"event as a request":      {result, holder, on(subject.Request(task, "infra", subject.Any, subject.Low)), 5003, HeaderEvent},
		"queued on held":          {request, orchestrator, on(subject.Request(task, "infra", subject.Held, subject.Low)), 5003, HeaderEvent},
		"held on any":             {want{kind: Held}, orchestrator, on(subject.Request(task, "infra", subject.Any, subject.Low)), 5003, HeaderEvent},
		"another type's subject":  {request, orchestrator, on(subject.Request(task, "desktop", subject.Any, subject.Low)), 5003, "to_agent"},
		"target is a priority":    {request, orchestrator, on(subject.Request(task, "infra", "high", subject.Low)), 5003, ""},
		"no such priority":        {request, orchestrator, on(subject.Request(task, "infra", subject.Any, "urgent")), 5003, ""},
	} {
		d := c.want.draft(t, c.by, 0, 3)
		h := maps.Clone(d.Header())
		c.change(t, &d, h)
		e := Read(d.Subject, h, d.Data, 6, zero)
		flt, ok := e.Err.(*fault.Fault)
		if !ok || flt.Code != c.code || flt.Field() != c.field {
			t.Errorf("%s: %v (field %q), want %d at %q", what, e.Err, flt.Field(), c.code, c.field)
		}
		if e.Err != nil && (e.Message.Request != nil || e.Message.Status != nil || e.Message.Result != nil || e.Message.Failure != nil) {
			t.Errorf("%s: the message of an entry that cannot be read is there", what)
		}
	}
}

// Without headers, the envelope's fault is told: it is what the person who put it there can mend.
func TestPutThereByHand(t *testing.T) {
	t.Parallel()
	subj := subject.Request(task, "infra", subject.Any, subject.Normal)
	for what, c := range map[string]struct {
		data string
		code fault.Code
	}{
		"no JSON":       {"hello", fault.InvalidMessage},
		"other version": {`{"protocol_version": "7.0"}`, fault.UnsupportedWorkType},
		"nothing":       {"", fault.InvalidMessage},
	} {
		var l log
		if err := l.put(Read(subj, nil, []byte(c.data), 1, zero)); err == nil || l.state.Stray == nil || l.state.Stray.Code != c.code {
			t.Errorf("%s: %v, stray %v, want code %d", what, err, l.state.Stray, c.code)
		}
	}
	var l log
	if err := l.put(Read(subject.Event(task, "web-1"), nil, nil, 3, zero)); err == nil {
		t.Error("an event without headers counts")
	}
	d := want{kind: Submitted}.draft(t, orchestrator, 0, 5) // well formed, and expects what is not there
	if err := l.put(stored(d, 9)); err != ErrExpectation || l.state.Stray == nil || l.state.Stray.Code != fault.InvalidMessage {
		t.Errorf("wrong expectation: %v, stray %v", err, l.state.Stray)
	}
}

// What stood before the first entry may have been removed while it was stored. Only what begins a task may stand so.
func TestRuleFirstEntryBehindWhatIsRemoved(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds {
		by := orchestrator
		if k == Started {
			by = starter
		}
		var l log
		err := l.put(stored(want{kind: k, code: fault.Timeout}.draft(t, by, 0, 5), 9))
		if begins := k == Submitted || k == Held; begins != (err == nil) || begins != (l.state.Phase != PhaseNone) {
			t.Errorf("%s: %v, phase %s", k, err, l.state.Phase)
		}
	}
	var l log
	if err := l.put(stored(want{kind: Held}.draft(t, orchestrator, 1, 5), 9)); err == nil {
		t.Error("a request held after an attempt begins a task")
	}
}

func FuzzRead(f *testing.F) {
	for _, w := range wants() {
		by := orchestrator
		d := w.draft(f, by, 1, 3)
		f.Add(d.Subject, d.ID, string(d.Kind), "1", "0", "3", subject.Task(task), d.Data)
	}
	d := want{kind: Started}.draft(f, starter, 0, 3)
	f.Add(d.Subject, d.ID, "started", "1", "7", "3", subject.Task(task), d.Data)
	f.Add("chiffon.task..event.", "", "", "", "", "", "", []byte("{"))
	f.Fuzz(func(t *testing.T, subj, id, kind, attempt, boot, expect, on string, data []byte) {
		e := Read(subj, map[string][]string{
			HeaderEntry: {id}, HeaderEvent: {kind}, HeaderAttempt: {attempt}, HeaderBoot: {boot},
			HeaderExpect: {expect}, HeaderExpectSubject: {on},
		}, data, 9, zero)
		if e.Err != nil {
			if flt, ok := e.Err.(*fault.Fault); !ok || !flt.Code.Valid() {
				t.Fatalf("%v (%T) is no fault", e.Err, e.Err)
			}
		}
		for _, s := range []State{{}, {TailSeq: e.Expect}, {TailSeq: e.Expect, Phase: PhaseQueued, Target: subject.Any, Type: "infra"},
			{TailSeq: e.Expect, Phase: PhaseRunning, Attempt: 1, Allowed: 2, Holder: "web-1", Boot: 7}} {
			next, err := s.Next(e)
			switch {
			case err != nil:
				same(t, s, next, e)
			case e.Err != nil:
				t.Fatalf("%+v counts although %v", e, e.Err)
			case next.TailSeq != 9:
				t.Fatalf("tail is %d", next.TailSeq)
			}
		}
	})
}
