package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
)

// A record is a Sink that notes the order of events.
type record struct {
	mu     sync.Mutex
	output strings.Builder
	events []string // "step 1 name 0%", "done 1 name 50%", and what was written between
	seen   func(soFar string)
}

func (r *record) Output(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.output.Write(p)
	r.events = append(r.events, string(p))
	if r.seen != nil {
		r.seen(r.output.String())
	}
}

func (r *record) Step(s Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	word, percent := "step", "?"
	if s.Done {
		word = "done"
	}
	if s.Percent != nil {
		percent = fmt.Sprint(*s.Percent)
	}
	r.events = append(r.events, fmt.Sprintf("%s %d %s %s%%", word, s.Number, s.Name, percent))
}

// steps lists the events that are steps.
func (r *record) steps() (list []string) {
	for _, e := range r.events {
		if stepEvent.MatchString(e) {
			list = append(list, e)
		}
	}
	return list
}

var stepEvent = regexp.MustCompile(`^(step|done) \d+ .*%$`)

// load reads work types from texts named by their files.
func load(t *testing.T, cfg Config, files map[string]string) (*Catalogue, []Problem) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Dirs = append(cfg.Dirs, dir)
	return Load(cfg)
}

// one loads a single work type that must be right.
func one(t *testing.T, text string) *Catalogue {
	t.Helper()
	c, problems := load(t, Config{Env: os.Environ()}, map[string]string{"x.yaml": text})
	if len(problems) > 0 {
		t.Fatalf("problems: %v\n%s", problems, text)
	}
	return c
}

func request(workType, params string) message.WorkRequest {
	return message.WorkRequest{TaskID: "0b5c1f6e-1111-8222-8333-444455556666", WorkType: workType, Parameters: json.RawMessage(params)}
}

func attempt(t *testing.T, r message.WorkRequest) Attempt {
	t.Helper()
	return Attempt{
		Task: r.TaskID, Number: 2, Agent: "atlas", Request: r, Dir: t.TempDir(),
		Envelope: message.Envelope{TraceID: "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", RequestID: "11111111-2222-3333-4444-555555555555"},
	}
}

// do runs a request to its end, which must leave nothing in the attempt's directory.
func do(t *testing.T, ctx context.Context, c *Catalogue, r message.WorkRequest, out *record) Outcome {
	t.Helper()
	w, err := c.Prepare(r, "admin")
	if err != nil {
		t.Fatalf("Prepare(%s %s): %v", r.WorkType, r.Parameters, err)
	}
	a := attempt(t, r)
	end := w.Work(ctx, a, out)
	if left, _ := os.ReadDir(a.Dir); len(left) > 0 {
		t.Errorf("the attempt left %v behind", left)
	}
	if end.Resources == nil {
		t.Error("outcome without resources")
	}
	return end
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	const any = "\nparameters: {type: object, properties: {a: {}, l: {type: array}, b: {type: boolean}, o: {type: object}, s: {type: string}}}\n"
	cases := map[string]struct {
		file   string
		params string
		output string
		want   Outcome
	}{
		"success":              {file: "command: [echo, hello]", output: "hello\n", want: Outcome{Status: "success"}},
		"failure":              {file: "command: [sh, -c, 'echo no; exit 3']", output: "no\n", want: Outcome{Status: "failed", ExitCode: 3}},
		"killed":               {file: "command: [sh, -c, 'kill -9 $$']", want: Outcome{Status: "failed", ExitCode: 137, Signal: "SIGKILL"}},
		"whole arguments":      {file: "command: [printf, '<%s>', {param: a}, --, {each: l}]" + any, params: `{"a":"a b;$(id)","l":["x y","-z",3,true]}`, output: "<a b;$(id)><--><x y><-z><3><true>"},
		"absent parameters":    {file: "command: [printf, '<%s>', x, {param: a}, {each: l}, {flag: -b, param: b}, {option: -o, file: o}]" + any, params: `{}`, output: "<x>"},
		"null is absent":       {file: "command: [printf, '<%s>', x, {param: a}]" + any, params: `{"a":null}`, output: "<x>"},
		"options":              {file: "command: [printf, '<%s>', {option: x, param: a}, {option: --y=, param: s}, {option: z, each: l}]" + any, params: `{"a":1.50,"s":"-q","l":["p","q"]}`, output: "<x><1.50><--y=-q><z><p><z><q>"},
		"flags":                {file: "command: [printf, '<%s>', {flag: b}, {flag: c, param: b}]" + any, params: `{"b":true}`, output: "<b><c>"},
		"flag not wanted":      {file: "command: [printf, '<%s>', x, {flag: b}]" + any, params: `{"b":false}`, output: "<x>"},
		"unless":               {file: "command: [printf, '<%s>', {unless: a, put: [p, q]}, {unless: s, put: [r]}]" + any, params: `{"a":1}`, output: "<r>"},
		"file":                 {file: "command: [cat, {file: o}]" + any, params: `{"o":{"k":[1,"é"]}}`, output: `{"k":[1,"é"]}`},
		"file behind a prefix": {file: `command: [sh, -c, 'case "$1$2" in --vars@/*) cat "${2#@}";; esac', sh, {option: --vars, file: o, prefix: "@"}]` + any, params: `{"o":{}}`, output: `{}`},
		"parameters file":      {file: `{command: [sh, -c, 'cat "$CHIFFON_PARAMETERS_FILE" "$1"', sh, {parameters_file: true}], parameters_file: true` + `, parameters: {type: object}}`, params: `{"a":1}`, output: `{"a":1}{"a":1}`},
		"stdin parameters":     {file: "command: [cat]\nstdin: parameters" + any, params: `{"a":"b"}`, output: `{"a":"b"}`},
		"stdin text":           {file: "command: [cat]\nstdin: {param: s}" + any, params: `{"s":"b\n"}`, output: "b\n"},
		"stdin none":           {file: "command: [cat]\nstdin: none"},
		"defaults":             {file: "command: [echo, {param: a}]\nparameters: {type: object, properties: {a: {default: d}}}", params: `{}`, output: "d\n"},
		"script":               {file: "script: |\n  #!/bin/sh -e\n  echo $# $1\n  false\n  echo no\ncommand: [{script: true}, a]", output: "1 a\n", want: Outcome{Status: "failed", ExitCode: 1}},
		"script alone":         {file: "script: |\n  #!/bin/sh\n  echo yes", output: "yes\n"},
		"fresh directory":      {file: "command: [ls, -A]"},
		"named directory":      {file: "command: [pwd]\ndir: /", output: "/\n"},
		"too much output":      {file: "command: [sh, -c, 'echo 1234567890; sleep 1000']\nlimits: {max_output: 4}", output: "1234", want: Outcome{Status: "failed", ExitCode: 143, Signal: "SIGTERM", Fault: fault.New(fault.ResourceLimitExceeded, "")}},
		"too long":             {file: "command: [sleep, '1000']\nlimits: {max_duration_seconds: 1}", want: Outcome{Status: "failed", ExitCode: 143, Signal: "SIGTERM", Fault: fault.New(fault.Timeout, "")}},
		"noop":                 {file: "builtin: noop\nparameters: {type: object}", params: `{"output":"x"}`, output: "x"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &record{}
			params := c.params
			if params == "" {
				params = "{}"
			}
			if c.want.Status == "" {
				c.want.Status = "success"
			}
			got := do(t, t.Context(), one(t, c.file), request("x", params), out)
			same := got.Status == c.want.Status && got.ExitCode == c.want.ExitCode && got.Signal == c.want.Signal && (got.Fault == nil) == (c.want.Fault == nil)
			if same && got.Fault != nil {
				same = got.Fault.Code == c.want.Fault.Code
			}
			if !same || out.output.String() != c.output {
				t.Errorf("work of\n%s\nwith %s = %q, %+v, want %q, %+v", c.file, params, out.output.String(), got, c.output, c.want)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	c, _ := load(t, Config{Env: []string{"PATH=/usr/bin:/bin", "SECRET=s", "AGENTRUNNER_TOKEN=t", "PASSED=p", "LC_ALL=C"}},
		map[string]string{"x.yaml": "command: [env]\nenv: {pass: [PASSED, ABSENT], set: {FIXED: f, TERM: xterm}}"})
	out := &record{}
	do(t, t.Context(), c, request("x", "{}"), out)
	got := strings.Split(strings.TrimSpace(out.output.String()), "\n")
	for i, kv := range got {
		if strings.HasPrefix(kv, "HOME=/") {
			got[i] = "HOME"
		}
		if strings.HasPrefix(kv, "CHIFFON_SUPERVISED=") {
			got[i] = "CHIFFON_SUPERVISED"
		}
	}
	slices.Sort(got)
	want := []string{
		"CHIFFON_AGENT_ID=atlas", "CHIFFON_ATTEMPT=2", "CHIFFON_REQUEST_ID=11111111-2222-3333-4444-555555555555",
		"CHIFFON_SUPERVISED", "CHIFFON_TASK_ID=0b5c1f6e-1111-8222-8333-444455556666", "FIXED=f", "HOME", "LANG=C.UTF-8", "LC_ALL=C", "PASSED=p",
		"PATH=/usr/bin:/bin", "TERM=xterm",
	}
	if i := slices.IndexFunc(got, func(kv string) bool { return strings.HasPrefix(kv, "TRACEPARENT=") }); i < 0 {
		t.Error("no TRACEPARENT")
	} else {
		if !regexp.MustCompile(`^TRACEPARENT=00-aaaaaaaabbbbccccddddeeeeeeeeeeee-[0-9a-f]{16}-01$`).MatchString(got[i]) {
			t.Errorf("%s", got[i])
		}
		got = slices.Delete(got, i, i+1)
	}
	if !slices.Equal(got, want) {
		t.Errorf("environment\n%q, want\n%q", got, want)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	const file = "command: [sh, -c, 'trap \"exit 9\" INT; echo ready; while :; do sleep 0.02; done']"
	cases := map[string]struct {
		cause error
		want  Outcome
	}{
		"cancelled":          {&Stop{Signal: "SIGINT", Grace: time.Minute, Reason: "not needed any more"}, Outcome{Status: "cancelled", ExitCode: 9}},
		"signal of the type": {&Stop{}, Outcome{Status: "cancelled", ExitCode: 143, Signal: "SIGTERM"}},
		"killed":             {&Stop{Signal: "KILL"}, Outcome{Status: "cancelled", ExitCode: 137, Signal: "SIGKILL"}},
		"deadline":           {&Stop{Signal: "INT", Fault: fault.New(fault.Timeout, "too late")}, Outcome{Status: "failed", ExitCode: 9, Fault: fault.New(fault.Timeout, "")}},
		"without a reason":   {context.Canceled, Outcome{Status: "cancelled", ExitCode: 143, Signal: "SIGTERM"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			out := &record{seen: func(s string) { cancel(c.cause) }}
			got := do(t, ctx, one(t, file), request("x", "{}"), out)
			if got.Status != c.want.Status || got.ExitCode != c.want.ExitCode || got.Signal != c.want.Signal || (got.Fault == nil) != (c.want.Fault == nil) {
				t.Errorf("stopped by %+v: %+v, want %+v", c.cause, got, c.want)
			}
			before := do(t, ctx, one(t, file), request("x", "{}"), &record{})
			if before.Status != c.want.Status || before.ExitCode != 0 {
				t.Errorf("stopped before it began: %+v", before)
			}
		})
	}
}

// The grace is that of the stop, else that of the work type, and never beyond what the stop allows at most.
func TestStopGrace(t *testing.T) {
	t.Parallel()
	const deaf = "command: [sh, -c, 'trap \"\" TERM; echo ready; while :; do sleep 0.02; done']\nstop: {grace_seconds: "
	for name, c := range map[string]struct {
		own  string
		stop Stop
	}{
		"that of the work type":      {"1", Stop{}},
		"within what is allowed":     {"1", Stop{Most: time.Hour}},
		"beyond what is allowed":     {"3600", Stop{Most: time.Millisecond}},
		"wanted beyond what may be":  {"3600", Stop{Grace: time.Hour, Most: time.Millisecond}},
		"wanted sooner than allowed": {"3600", Stop{Grace: time.Millisecond, Most: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			out := &record{seen: func(string) { cancel(&c.stop) }}
			if got := do(t, ctx, one(t, deaf+c.own+"}"), request("x", "{}"), out); got.Status != "cancelled" || got.ExitCode != 137 {
				t.Errorf("%+v, want it killed", got)
			}
		})
	}
}

func TestProgramGoneSinceLoaded(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := one(t, "command: ["+program+"]")
	os.Remove(program)
	got := do(t, t.Context(), c, request("x", "{}"), &record{})
	if got.Status != "failed" || got.ExitCode != 127 || !strings.Contains(got.Note, program) {
		t.Errorf("outcome %+v", got)
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	var started *child.Process
	c := one(t, "command: [sh, -c, 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done']")
	r := request("x", "{}")
	w, err := c.Prepare(r, "")
	if err != nil {
		t.Fatal(err)
	}
	a := attempt(t, r)
	a.Started = func(p *child.Process) { started = p }
	got := w.Work(t.Context(), a, &record{})
	if got.Resources.CPUTimeMS < 10 || got.Resources.DurationSeconds != 1 || started == nil {
		t.Errorf("resources %+v", got.Resources)
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	for attempts, kept := range map[string]bool{"1": true, "2": false} {
		c := one(t, "command: [sh, -c, 'exit 6']\nattempts: "+attempts)
		r := request("x", "{}")
		w, err := c.Prepare(r, "")
		if err != nil {
			t.Fatal(err)
		}
		a := attempt(t, r)
		a.Keep = filepath.Join(t.TempDir(), "kept")
		w.Work(t.Context(), a, &record{})
		end, _, err := Recover(t.Context(), a.Keep)
		if kept && (err != nil || end.Status != "failed" || end.ExitCode != 6) || !kept && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("with %s attempts: %+v, %v", attempts, end, err)
		}
	}
}
