package intake_test

import (
	"slices"
	"strings"
	"testing"

	"chiffon/pkg/message"
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
