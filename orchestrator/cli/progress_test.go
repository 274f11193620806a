package cli

import (
	"encoding/json"
	"testing"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	request := func(x message.Extension) any {
		m := message.New("orchestrator", "infra", trace, reqID, message.WorkRequest{TaskID: idA, WorkType: "w", Parameters: json.RawMessage(`{}`)})
		m.Custom.Chiffon = &x
		return m
	}
	running := func(x message.Extension, percent *int, step *message.Step) any {
		m := fromAgent(message.WorkStatus{TaskID: idA, Status: message.StatusRunning, ProgressPercent: percent, Step: step})
		m.Custom.Chiffon = &x
		return m
	}
	failure := fromAgent(message.Failure{Code: fault.AgentUnavailable, Message: "gone"})
	tests := map[string]struct {
		kind    string
		attempt int
		void    string
		missing int
		message any
		want    string
		percent int
	}{
		"submitted":            {kind: "submitted", want: "queued"},
		"held, in words":       {kind: "held", message: request(message.Extension{Hold: &message.Hold{Reason: "placement", Detail: "no agent has site=attic"}}), want: "held: no agent has site=attic"},
		"held":                 {kind: "held", message: request(message.Extension{Hold: &message.Hold{Reason: "approval"}}), want: "held: approval"},
		"held, unreadable":     {kind: "held", message: 7, want: "held"},
		"started again":        {kind: "started", attempt: 2, message: running(message.Extension{}, new(5), nil), want: "started on nas, attempt 2", percent: 5},
		"paused":               {kind: "paused", want: "paused"},
		"attempt failed":       {kind: "attempt_failed", attempt: 1, message: failure, want: "attempt 1 failed: 5002: gone"},
		"cancel":               {kind: "cancel_requested", message: running(message.Extension{Cancel: &message.Cancel{By: "me", Reason: "no\nmore"}}, nil, nil), want: `cancelling, asked by me: no\nmore`},
		"cancel, no more said": {kind: "cancel_requested", want: "cancelling"},
		"status without step":  {kind: "status", attempt: 1, message: running(message.Extension{}, new(30), nil), percent: 30},
		"a step":               {kind: "status", attempt: 1, message: running(message.Extension{}, new(30), &message.Step{Number: 3, Name: "x"}), want: "step 3  x", percent: 30},
		"the same step":        {kind: "status", attempt: 1, message: running(message.Extension{}, new(40), &message.Step{Number: 1, Name: "one"}), percent: 40},
		"no real step":         {kind: "status", attempt: 1, message: running(message.Extension{}, new(1), &message.Step{Number: 2, Name: "survey_host"}), percent: 1},
		"a step that is over":  {kind: "status", attempt: 9, message: running(message.Extension{}, new(99), &message.Step{Number: 3, Name: "x"})},
		"a gap":                {kind: "gap", missing: 7, want: "--- 7 status messages are not kept any more ---"},
		"void":                 {kind: "failed", void: "of another writer", want: "an entry that does not count: failed of another writer"},
		"an end":               {kind: "succeeded"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := progress{work: "survey_host", attempt: 1, step: 1, name: "one"}
			e := client.Event{Event: view.Event{Kind: test.kind, Time: start, AgentID: "nas", Attempt: test.attempt, Void: test.void, Missing: test.missing}}
			if test.message != nil {
				e.Message, _ = json.Marshal(test.message)
			}
			if got := g.apply(e); got != test.want || max(g.percent, 0) != test.percent {
				t.Errorf("apply(%s) = %q at %d%%, want %q at %d%%", test.kind, got, g.percent, test.want, test.percent)
			}
		})
	}
	g := progress{}
	x := message.Extension{RetryAt: new(start.Add(2 * time.Second))}
	m := fromAgent(message.Failure{Code: fault.Timeout, Message: "late"})
	m.Custom.Chiffon = &x
	data, _ := json.Marshal(m)
	if got := g.apply(client.Event{Event: view.Event{Kind: "attempt_failed", Attempt: 1, Time: start, Message: data}}); got != "attempt 1 failed: 5001: late; the next begins in 2.0s" {
		t.Errorf("attempt_failed = %q", got)
	}
}
