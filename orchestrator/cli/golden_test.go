package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/build"
	"chiffon/pkg/fault"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	idA = "3f2a9c10-aaaa-8bbb-8ccc-000000000001"
	idB = "3f2b7711-aaaa-8bbb-8ccc-000000000002"
	idC = "77be0000-aaaa-8bbb-8ccc-000000000003"
	idD = "c0ffee00-aaaa-8bbb-8ccc-000000000004"
	idE = "e1100000-aaaa-8bbb-8ccc-000000000005"
	idF = "f0000000-aaaa-8bbb-8ccc-000000000006"
)

// evil is what an agent or a submitter writes to play with the terminal.
const evil = "x\x1b[2J\r\u202ey\n"

func survey(id string) *story {
	return newStory(id, "survey_host").started(0.5, 1).
		status(0.6, 0, 1, "System", "\x1b[1mSystem\x1b[0m\r\nLinux\n").
		status(1.5, 50, 2, "Memory"+evil, "Memory: 3"+"\x07 GiB\xff\n").
		ended(2.5, view.Succeeded, 0, "System\nLinux\nMemory: 3\x07 GiB\n")
}

func retried(id string) *story {
	s := newStory(id, "run_playbook").started(1, 1).status(1.1, 10, 1, "Gather facts", "one\n").
		failedAttempt(2, fault.Timeout, "no sign of life", 4)
	s.add("queued", 4, 0, nil)
	s.started(4.5, 2).status(4.6, 10, 1, "Gather facts", "two\n")
	s.add("gap", 4.7, 0, nil).Missing = 3
	return s.ended(6, view.Failed, 7, "two\n")
}

func stories() []*story {
	held := newStory(idC, "deploy_service")
	held.State, held.WaitingFor, held.Name, held.Labels = view.Held, "an agent of type infra: none is known", "web", map[string]string{"app": "web"}
	held.Parameters, held.On, held.Hints = json.RawMessage(`{"services":["web"],"extra":{"a":1}}`), map[string]string{"site": "attic"}, &view.Hints{MaxDurationSeconds: 60}
	timedOut := newStory(idD, "survey_host").started(1, 1).ended(9, view.Error, 5001, "its time is up")
	cancelled := newStory(idE, "survey_host").started(1, 1).ended(3, view.Cancelled, 143, "")
	return []*story{survey(idA), retried(idB), held, timedOut, cancelled, stopping(), lost()}
}

// stopping is a task that is being cancelled while its runner is silent.
func stopping() *story {
	s := newStory("ca000000-aaaa-8bbb-8ccc-000000000007", "survey_host").started(1, 1)
	s.State, s.SilentSince, s.WaitingFor = view.Cancelling, new(start.Add(57*time.Minute)), "agent nas to confirm the stop"
	s.Cancel = &view.Cancel{By: "admin", Reason: "wrong host", At: new(start.Add(55 * time.Minute)), Signal: "INT", GraceSeconds: 120}
	return s
}

// lost is a task whose runner is silent.
func lost() *story {
	s := newStory("10500000-aaaa-8bbb-8ccc-000000000008", "run_playbook").started(1, 1)
	s.SilentSince, s.Attempts = new(start.Add(30*time.Minute)), 1
	return s
}

// neverBegan is a task that was cancelled while it was queued.
func neverBegan() *story {
	s := newStory(idF, "survey_host").ended(3, view.Cancelled, 0, "")
	s.Result.ResourcesUsed = view.Resources{}
	return s
}

func agents() []view.Agent {
	return []view.Agent{
		{AgentID: "nas", AgentType: "infra", State: "ready", Host: "nas.lan", Version: "v1.2.0", Slots: 2,
			Running: []view.Holding{{TaskID: idA, Attempt: 1}}, Capabilities: []string{"docker"}, Labels: map[string]string{"site": "attic"},
			WorkTypes: []view.WorkType{{Name: "survey_host", Description: "Look at the host" + evil, Attempts: 4}},
			Resources: view.HostResources{CPUs: 4, CPUPercent: 12.4, MemoryMB: 8000, MemoryFreeMB: 4000}, FirstSeen: start, LastSeen: new(start.Add(59 * time.Minute))},
		{AgentID: "pi", AgentType: "infra", State: "silent", Slots: 1, FirstSeen: start},
	}
}

// play runs one command line against f and returns all that came of it.
func play(t *testing.T, ctx context.Context, f *fake, terminal bool, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, talk bytes.Buffer
	p := player(t, f, terminal, &out, &talk)
	p.in = strings.NewReader(stdin)
	err := p.run(ctx, args)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(&talk, "orchestrator:", err)
	}
	return out.String(), talk.String(), ExitCode(err)
}

func player(t *testing.T, f *fake, terminal bool, out, talk *bytes.Buffer) *program {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HOME": dir, "ORCHESTRATOR_TOKEN_FILE": file, "ORCHESTRATOR_STATE": dir}
	if f != nil {
		env["ORCHESTRATOR_URL"] = f.URL
	}
	width := func() int { return 80 }
	return &program{
		out:  &screen{w: out, terminal: terminal, colour: terminal, width: width},
		talk: &screen{w: talk, terminal: terminal, colour: terminal, width: width},
		env:  func(k string) string { return env[k] },
		now:  func() time.Time { return start.Add(time.Hour) }, curious: time.Hour,
	}
}

var (
	frames = regexp.MustCompile(`[^\n]*\r\x1b\[K`) // of the live line: as many as there was time for
	port   = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	folder = regexp.MustCompile(`/[^ ]*/(token|admin\.json)`)
)

// steady replaces what differs from run to run.
func steady(text string) string {
	text = frames.ReplaceAllString(text, "")
	text = port.ReplaceAllString(text, "HOST:PORT")
	text = folder.ReplaceAllString(text, "DIR/$1")
	return strings.ReplaceAll(text, build.Version(), "VERSION")
}

func TestGolden(t *testing.T) {
	good := `{"protocol_version":"1.0","message_id":"550e8400-e29b-41d4-a716-446655440001","from_agent":"orchestrator","to_agent":"infra","timestamp":"2026-01-19T04:21:04Z","trace_id":"550e8400-e29b-41d4-a716-446655440002","request_id":"550e8400-e29b-41d4-a716-446655440003","type":"work_request","payload":{"task_id":"550e8400-e29b-41d4-a716-446655440004","work_type":"w","parameters":{}}}`
	bad := strings.Replace(good, `"work_type":"w"`, `"work_type":7`, 1)
	tests := map[string]struct {
		args     string
		stdin    string
		terminal bool
	}{
		"help":                {args: "--help"},
		"help-submit":         {args: "submit --help"},
		"help-run":            {args: "run --help"},
		"help-task":           {args: "task --help"},
		"help-task-list":      {args: "task list --help"},
		"list-pipe":           {args: "task list"},
		"list-terminal":       {args: "task list", terminal: true},
		"list-more":           {args: "task list --limit 2", terminal: true},
		"list-none":           {args: "task list --state paused"},
		"list-quiet":          {args: "task list --state failed -q"},
		"list-json":           {args: "task list --state held -o json"},
		"list-bad-state":      {args: "task list --state done --since yesterday"},
		"show-ended":          {args: "task show 3f2b", terminal: true},
		"show-held":           {args: "task show 77be"},
		"show-error":          {args: "task show c0ff"},
		"show-json":           {args: "task show c0ff -o json", terminal: true},
		"show-ambiguous":      {args: "task show 3f2"},
		"show-unknown":        {args: "task show 99"},
		"watch-pipe":          {args: "task watch 3f2a"},
		"watch-terminal":      {args: "task watch 3f2a", terminal: true},
		"watch-retried":       {args: "task watch 3f2b"},
		"watch-error":         {args: "task watch c0ff"},
		"watch-cancelled":     {args: "task watch e11"},
		"logs-pipe":           {args: "task logs 3f2a"},
		"logs-terminal":       {args: "task logs 3f2a -f", terminal: true},
		"logs-attempts":       {args: "task logs 3f2b"},
		"logs-attempt-1":      {args: "task logs 3f2b --attempt 1"},
		"cancel":              {args: "task cancel 3f2a 77be 99 --reason no"},
		"cancel-json":         {args: "task cancel 3f2a -o json"},
		"cancel-again":        {args: "task cancel ca00 105", terminal: true},
		"cancel-sooner":       {args: "task cancel ca00 --grace 1s"},
		"cancel-signal":       {args: "task cancel 3f2a --signal TREM"},
		"show-cancelling":     {args: "task show ca00"},
		"show-unreachable":    {args: "task show 105", terminal: true},
		"why":                 {args: "task why 77be", terminal: true},
		"why-json":            {args: "task why 77be -o json"},
		"agent-why":           {args: "agent why pi"},
		"history":             {args: "task history 3f2a"},
		"history-terminal":    {args: "task history 3f2a", terminal: true},
		"history-json":        {args: "task history 3f2a -o json"},
		"retry":               {args: "task retry 3f2b"},
		"retry-wait":          {args: "task retry 3f2b c0ff --wait"},
		"retry-follow":        {args: "task retry 3f2b -f"},
		"retry-json":          {args: "task retry 3f2b -o json"},
		"retry-open":          {args: "task retry 77be 3f2b"},
		"retry-failed":        {args: "task retry --failed --limit 1"},
		"retry-dry":           {args: "task retry --failed --dry-run"},
		"retry-none":          {args: "task retry --failed --state succeeded --type code --limit 0"},
		"retry-filters":       {args: "task retry 3f2b --since 1h"},
		"help-task-retry":     {args: "task retry --help"},
		"help-task-cancel":    {args: "task cancel --help"},
		"agents-pipe":         {args: "agent list"},
		"agents-terminal":     {args: "agent list", terminal: true},
		"agent-show":          {args: "agent show nas", terminal: true},
		"agent-unknown":       {args: "agent show nass"},
		"agent-pause":         {args: "agent pause nas --for 30m --message disk"},
		"agent-pause-until":   {args: "agent pause nas --until 14:00 -o json"},
		"agent-pause-over":    {args: "agent pause nas --until 2026-01-01"},
		"agent-pause-neither": {args: "agent pause nas"},
		"agent-pause-unknown": {args: "agent pause zzzzzzzz --for 1h"},
		"agent-resume":        {args: "agent resume nas", terminal: true},
		"agent-drain-unknown": {args: "agent drain nad"},
		"help-agent-drain":    {args: "agent drain --help"},
		"breaker-list":        {args: "breaker list", terminal: true},
		"breaker-list-pipe":   {args: "breaker list"},
		"breaker-reset":       {args: "breaker reset nas"},
		"breaker-reset-json":  {args: "breaker reset nas -o json"},
		"breaker-unknown":     {args: "breaker reset nass"},
		"doctor":              {args: "doctor"},
		"doctor-json":         {args: "doctor -o json"},
		"submit":              {args: `submit infra survey_host --name x`, terminal: true},
		"submit-json":         {args: `submit infra survey_host -o json`},
		"submit-wait":         {args: `submit infra survey_host --wait`},
		"submit-wait-json":    {args: `submit infra survey_host --wait -o json`},
		"submit-follow":       {args: `submit infra survey_host --follow`},
		"submit-wait-follow":  {args: `submit infra survey_host --wait --follow`},
		"submit-bad-flags":    {args: `submit Infra survey_host --priority urgent --request-id 7 --on site`},
		"submit-refused":      {args: `submit infra mine_coins`},
		"run":                 {args: `run -- echo hello -n`},
		"run-failed":          {args: `run -- false`},
		"run-cancelled":       {args: `run -- sleep 99`},
		"run-error":           {args: `run --max-duration 8s -- sleep 9`},
		"usage-no-arguments":  {args: "submit infra"},
		"usage-too-many":      {args: "task show a b"},
		"usage-unknown":       {args: "tsk"},
		"usage-unknown-below": {args: "task canel"},
		"usage-flag":          {args: "task list --bad"},
		"usage-completion":    {args: "completion tcsh"},
		"usage-output":        {args: "task list -o yaml"},
		"validate-one":        {args: "validate -", stdin: good},
		"validate-lines":      {args: "validate -", stdin: good + "\n\n" + bad + "\n{\n"},
		"validate-lines-json": {args: "validate - -o json", stdin: good + "\n" + bad + "\n"},
		"validate-broken":     {args: "validate -", stdin: "{\n \"type\":\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, stories()...)
			f.agents = agents()
			f.submit = submitted
			stdout, stderr, code := play(t, t.Context(), f, test.terminal, test.stdin, strings.Fields(test.args)...)
			got := fmt.Sprintf("$ orchestrator %s\n%s-- stderr --\n%s-- exit %d --\n", test.args, plain(steady(stdout)), plain(steady(stderr)), code)
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; go test -update writes it", err)
			}
			if got != string(want) {
				t.Errorf("%s differs; -update writes it anew. got:\n%s\nwant:\n%s", file, got, want)
			}
		})
	}
}

// plain keeps golden files readable: an escape character shows as ␛, a bell as ␇, what is no UTF-8 as ?.
func plain(text string) string {
	return strings.NewReplacer("\x1b", "␛", "\x07", "␇", "\r", "␍").Replace(strings.ToValidUTF8(text, "?"))
}

// submitted is what becomes of the submissions of TestGolden.
func submitted(body map[string]any) *story {
	const id = "5ab00000-aaaa-8bbb-8ccc-000000000009"
	switch body["work_type"] {
	case "survey_host":
		return survey(id)
	case "run_command":
		argv := body["parameters"].(map[string]any)["argv"].([]any)
		s := newStory(id, "run_command").started(0.5, 1)
		switch argv[0] {
		case "echo":
			return s.status(0.6, 0, 1, "echo", "hello\x1b[2J\n").ended(0.7, view.Succeeded, 0, "hello\x1b[2J\n")
		case "false":
			return s.ended(0.7, view.Failed, 42, "only in the result\n")
		}
		if body["hints"] != nil {
			return s.ended(8, view.Error, 5001, "its time is up")
		}
		return s.ended(0.7, view.Cancelled, 143, "")
	}
	panic(fmt.Sprintf("no story for %v", body))
}
