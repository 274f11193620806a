package cli

import (
	"strings"
	"testing"

	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// foreign is a status of an agent that may write statuses, for a task that it does not hold.
func (s *story) foreign(after float64, agent string, attempt int) {
	e := s.add("status", after, attempt, fromAgent(message.WorkStatus{TaskID: subject.TaskID(s.TaskID), Status: message.StatusRunning,
		ProgressPercent: new(99), Step: &message.Step{Number: 9, Name: "evil", Output: "evil output\n"}}))
	e.AgentID = agent
}

// What agents write that do not hold the task is neither its progress nor its output, and is said to be left out.
func TestStatusesOfOthers(t *testing.T) {
	t.Parallel()
	task := newStory(idA, "survey_host")
	task.foreign(0.1, "eve", 0)
	task.foreign(0.2, "eve", 1)
	task.started(0.5, 1)
	task.foreign(0.6, "eve", 1)
	task.foreign(0.7, "eve", 0)
	task.foreign(0.8, "eve", 2)
	task.status(1, 10, 1, "System", "Linux\n")
	task.add("started", 1.1, 5, fromAgent(message.WorkStatus{TaskID: idA, Status: message.StatusRunning})).Void = "not the holder"
	task.foreign(1.2, "nas", 5)
	task.ended(2.5, view.Succeeded, 0, "Linux\n")
	for _, args := range []string{"task watch 3f2a", "task logs 3f2a", "task logs 3f2a -f", "submit infra x --follow", "run -- x"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, task)
			f.submit = func(map[string]any) *story { return task }
			stdout, stderr, code := play(t, t.Context(), f, false, "", strings.Fields(args)...)
			if code != 0 || strings.Contains(stdout, "evil") || strings.Contains(stdout, "99%") || !strings.Contains(stdout, "Linux") {
				t.Errorf("exit %d, shown:\n%s", code, stdout)
			}
			if !strings.Contains(stderr, "6 statuses by other agents are not shown\n") {
				t.Errorf("stderr: %s", stderr)
			}
		})
	}
	f := newFake(t, task)
	if stdout, _, _ := play(t, t.Context(), f, false, "", "task", "logs", "3f2a", "-o", "json"); strings.Count(stdout, "evil output") != 6 {
		t.Errorf("as JSON, not all is shown: %s", stdout)
	}
}

// A status may come before the start of its attempt: they are in two streams, and each has its clock.
func TestAStatusBeforeItsStart(t *testing.T) {
	t.Parallel()
	task := newStory(idA, "survey_host")
	task.State, task.AgentID, task.Attempt = view.Running, "nas", 1
	task.status(0.4, 10, 1, "System", "first\n")
	task.started(0.5, 1).status(0.6, 20, 2, "Memory", "second\n").ended(1, view.Succeeded, 0, "first\nsecond\n")
	stdout, stderr, code := play(t, t.Context(), newFake(t, task), false, "", "task", "logs", "3f2a")
	if stdout != "first\nsecond\n" || stderr != "" || code != 0 {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

// A status that does not say its attempt is one of the present attempt, and its output is not shown again from the result.
func TestAStatusWithoutAttempt(t *testing.T) {
	t.Parallel()
	task := newStory(idA, "survey_host").started(0.5, 1).status(0.6, 10, 1, "System", "once\n")
	task.events[len(task.events)-1].Attempt = 0
	task.ended(1, view.Succeeded, 0, "once\n")
	stdout, stderr, code := play(t, t.Context(), newFake(t, task), false, "", "task", "logs", "3f2a", "--attempt", "1")
	if stdout != "once\n" || stderr != "" || code != 0 {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

func TestAttemptsThatAreNot(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--attempt 7":    "task 3f2b has no attempt 7: it has begun 2 attempts so far",
		"--attempt 7 -f": "task 3f2b has no attempt 7: it has begun 2 attempts so far",
		"--attempt -1":   "--attempt -1: attempts count from 1",
		"--attempt 0":    "--attempt 0: attempts count from 1",
	} {
		f := newFake(t, retried(idB))
		stdout, stderr, code := play(t, t.Context(), f, false, "", strings.Fields("task logs 3f2b "+args)...)
		if code != ExitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit %d, %q, %q, want %q", args, code, stdout, stderr, want)
		}
	}
}

// Output that is neither in the statuses nor said to have expired is not passed over.
func TestOutputThatIsNotKept(t *testing.T) {
	t.Parallel()
	task := newStory(idA, "survey_host").started(0.5, 1).status(0.6, 0, 1, "System", "Linux\n").ended(1, view.Succeeded, 0, "Linux\n")
	task.events[len(task.events)-1].Task.Result.OutputBytes = 106
	_, stderr, code := play(t, t.Context(), newFake(t, task), false, "", "task", "logs", "3f2a")
	if code != 0 || !strings.Contains(stderr, "100 bytes of the output are missing here") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}
