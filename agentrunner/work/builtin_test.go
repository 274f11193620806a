package work

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestBuiltInTypesAreRight(t *testing.T) {
	t.Parallel()
	c, problems := Load(Config{Env: os.Environ()})
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	want := map[string]int{"deploy_service": 1, "noop": DefaultAttempts, "run_command": 1, "run_playbook": 1, "survey_host": DefaultAttempts}
	for _, typ := range c.Types() {
		if attempts, ok := want[typ.Name]; !ok || attempts != typ.Attempts || typ.Description == "" {
			t.Errorf("%s: %d attempts, %q", typ.Name, typ.Attempts, typ.Description)
		}
		delete(want, typ.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// complaint is what a shell or a tool says when a script is wrong.
var complaint = regexp.MustCompile(`(?i)not found|cannot|denied|syntax|illegal|sh: |awk: `)

func TestSurveyHost(t *testing.T) {
	t.Parallel()
	c, _ := Load(Config{Env: os.Environ()})
	out := &record{}
	end := do(t, t.Context(), c, request("survey_host", "{}"), out)
	if end.Status != "success" {
		t.Fatalf("outcome %+v\n%s", end, out.output.String())
	}
	steps := out.steps()
	if len(steps) != 16 || steps[0] != "step 1 System 0%" || steps[1] != "done 1 System 12%" || steps[15] != "done 8 Summary 99%" {
		t.Errorf("steps %q", steps)
	}
	for _, want := range []string{"  Host         ", "  Processors   ", "== STEP 8/8: Summary\n"} {
		if !strings.Contains(out.output.String(), want) {
			t.Errorf("no %q in\n%s", want, out.output.String())
		}
	}
	if complaint.MatchString(out.output.String()) {
		t.Errorf("a tool that is missing or misused shows:\n%s", out.output.String())
	}
}

// The survey must do with next to nothing: a PATH that holds only what every system has.
func TestSurveyHostWithFewTools(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, tool := range []string{"sh", "awk", "cut", "date", "df", "grep", "head", "id", "sed", "sleep", "sort", "tr", "uname", "wc", "ls"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Skipf("%s is missing here", tool)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := Load(Config{Env: []string{"PATH=" + bin}})
	out := &record{}
	end := do(t, t.Context(), c, request("survey_host", "{}"), out)
	if end.Status != "success" || complaint.MatchString(out.output.String()) || len(out.steps()) != 16 {
		t.Errorf("outcome %+v, steps %q\n%s", end, out.steps(), out.output.String())
	}
}

func TestRunCommand(t *testing.T) {
	t.Parallel()
	if c, _ := Load(Config{}); slices.Contains(c.offered(), "run_command") {
		t.Error("run_command is offered though nothing is allowed")
	}
	c, _ := Load(Config{Env: os.Environ(), AllowCommands: []string{"sh", "echo -n *", "cat", "no-such-*"}})
	cases := map[string]struct {
		params, output, field string
		status                string
		code                  int
	}{
		"exit code":       {params: `{"argv":["sh","-c","echo a; exit 4"]}`, output: "a\n", status: "failed", code: 4},
		"options":         {params: `{"argv":["echo","-n","--x"]}`, output: "--x", status: "success"},
		"stdin":           {params: `{"argv":["cat"],"stdin":"in"}`, output: "in", status: "success"},
		"missing program": {params: `{"argv":["no-such-program"]}`, status: "failed", code: 127},
		"not allowed":     {params: `{"argv":["rm","-rf","/"]}`, field: "payload.parameters.argv"},
		"other arguments": {params: `{"argv":["echo","x"]}`, field: "payload.parameters.argv"},
		"no program":      {params: `{"argv":[""]}`, field: "payload.parameters.argv"},
		"nothing":         {params: `{"argv":[]}`, field: "payload.parameters.argv"},
		"unknown":         {params: `{"argv":["cat"],"cwd":"/"}`, field: "payload.parameters.cwd"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request("run_command", tc.params)
			if tc.field != "" {
				wantInvalid(t, c, r, tc.field)
				return
			}
			out := &record{}
			end := do(t, t.Context(), c, r, out)
			if end.Status != tc.status || end.ExitCode != tc.code || out.output.String() != tc.output {
				t.Errorf("%s = %q, %+v", tc.params, out.output.String(), end)
			}
			if tc.code == 127 && !strings.Contains(end.Note, "no-such-program") {
				t.Errorf("note %q does not name the program", end.Note)
			}
		})
	}
}

// standIn puts a program into a PATH that notes its arguments and replays output.
func standIn(t *testing.T, name, script string) (env []string, log string) {
	t.Helper()
	bin := t.TempDir()
	log = filepath.Join(bin, "log")
	text := "#!/bin/sh\necho \"$*\" >> '" + log + "'\n" + script
	if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + bin}, log
}

func roots(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Output written after that of docker compose 2.29, not recorded from it: this project has not met an engine yet.
const fakeDocker = `
case "$*" in
*" pull"*) printf ' web Pulling \n web Pulled \n' >&2 ;;
*" up "*) printf ' Network shop_default  Creating\n Network shop_default  Created\n Container shop-web-1  Started\n' >&2; exit ${UP_CODE:-0} ;;
*" ps"*) printf 'NAME        IMAGE   SERVICE   STATUS\nshop-web-1  nginx   web       Up 1 second\n' ;;
*) echo "unexpected: $*" >&2; exit 64 ;;
esac
`

func TestDeployService(t *testing.T) {
	t.Parallel()
	services := roots(t, map[string]string{"shop/compose.yaml": "services: {}\n"})
	file := services + "/shop/compose.yaml"
	cases := map[string]struct {
		params string
		calls  []string
		steps  []string
	}{
		"all": {
			`{"file":"shop/compose.yaml"}`,
			[]string{"pull", "up --detach --remove-orphans", "ps"},
			[]string{"step 1 Pull images 0%", "done 1 Pull images 33%", "step 2 Start services 33%", "done 2 Start services 66%", "step 3 Show what runs 66%", "done 3 Show what runs 99%"},
		},
		"some, without pull": {
			`{"file":"shop/compose.yaml","project":"shop","services":["web","db"],"skip_pull":true}`,
			[]string{"--project-name shop up --detach --remove-orphans web db", "--project-name shop ps web db"},
			[]string{"step 1 Start services 0%", "done 1 Start services 50%", "step 2 Show what runs 50%", "done 2 Show what runs 99%"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, log := standIn(t, "docker", fakeDocker)
			c, _ := Load(Config{Env: env, Services: services})
			out := &record{}
			end := do(t, t.Context(), c, request("deploy_service", tc.params), out)
			text, _ := os.ReadFile(log)
			var want strings.Builder
			for _, call := range tc.calls {
				want.WriteString("compose --ansi never --file " + file + " " + call + "\n")
			}
			if end.Status != "success" || string(text) != want.String() || !slices.Equal(out.steps(), tc.steps) {
				t.Errorf("%+v\ncalls\n%swant\n%ssteps %q\n%s", end, text, want.String(), out.steps(), out.output.String())
			}
		})
	}
	t.Run("up fails", func(t *testing.T) {
		t.Parallel()
		env, _ := standIn(t, "docker", strings.Replace(fakeDocker, "${UP_CODE:-0}", "18", 1))
		c, _ := Load(Config{Env: env, Services: services})
		out := &record{}
		end := do(t, t.Context(), c, request("deploy_service", `{"file":"shop/compose.yaml"}`), out)
		if end.Status != "failed" || end.ExitCode != 18 || slices.Contains(out.steps(), "done 2 Start services 66%") {
			t.Errorf("%+v, steps %q", end, out.steps())
		}
	})
	t.Run("no docker", func(t *testing.T) {
		t.Parallel()
		bin := t.TempDir()
		c, _ := Load(Config{Env: []string{"PATH=" + bin}, Services: services})
		out := &record{}
		end := do(t, t.Context(), c, request("deploy_service", `{"file":"shop/compose.yaml"}`), out)
		if end.ExitCode != 127 || !strings.Contains(out.output.String(), "docker was not found") {
			t.Errorf("%+v %q", end, out.output.String())
		}
	})
}

func TestPlaybookArguments(t *testing.T) {
	t.Parallel()
	books := roots(t, map[string]string{"site.yml": "", "hosts.ini": "", "-odd.yml": ""})
	const local = "--inventory localhost, --connection local"
	cases := map[string]struct{ params, args string }{
		"plain":     {`{"playbook":"site.yml"}`, local + " BOOKS/site.yml"},
		"odd name":  {`{"playbook":"-odd.yml"}`, local + " BOOKS/-odd.yml"},
		"inventory": {`{"playbook":"site.yml","inventory":"hosts.ini","limit":"web"}`, "--inventory BOOKS/hosts.ini --limit web BOOKS/site.yml"},
		"choices":   {`{"playbook":"site.yml","tags":["a","b"],"skip_tags":["c"],"check":true,"diff":true}`, local + " --tags a --tags b --skip-tags c --check --diff BOOKS/site.yml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, log := standIn(t, "ansible-playbook", "")
			c, _ := Load(Config{Env: env, Playbooks: books})
			end := do(t, t.Context(), c, request("run_playbook", tc.params), &record{})
			text, _ := os.ReadFile(log)
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			want := strings.ReplaceAll(tc.args, "BOOKS", books)
			if end.Status != "success" || len(lines) != 2 || lines[1] != want || !strings.HasPrefix(lines[0], "--list-tasks ") {
				t.Errorf("%+v, calls\n%s\nwant\n%s", end, text, want)
			}
		})
	}
	env, _ := standIn(t, "ansible-playbook", "")
	c, _ := Load(Config{Env: env, Playbooks: books})
	for params, field := range map[string]string{
		`{"playbook":"other.yml"}`:                        "playbook",
		`{"playbook":"../` + filepath.Base(books) + `"}`:  "playbook",
		`{"playbook":"/etc/passwd"}`:                      "playbook",
		`{"playbook":""}`:                                 "playbook",
		`{"playbook":"site.yml","inventory":"/dev/null"}`: "inventory",
		`{"playbook":"site.yml","limit":"--become"}`:      "limit",
		`{"playbook":"site.yml","tags":["-e@/x"]}`:        "tags",
		`{"playbook":"site.yml","extra_vars":["a"]}`:      "extra_vars",
		`{}`: "playbook",
	} {
		wantInvalid(t, c, request("run_playbook", params), "payload.parameters."+field)
	}
}

const playbook = `
- name: Prepare
  hosts: all
  tasks:
    - name: Write a file
      ansible.builtin.copy:
        dest: "{{ where }}/made"
        content: "{{ greeting }}"
    - name: Include more
      ansible.builtin.include_tasks: more.yml
    - name: Say something
      ansible.builtin.debug:
        msg: "done"
      failed_when: broken | default(false)
`

const included = `
- name: First of more
  ansible.builtin.debug: {msg: one}
- name: Second of more
  ansible.builtin.debug: {msg: two}
`

func TestRealPlaybook(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Skip("ansible-playbook is not installed here")
	}
	where := t.TempDir()
	books := roots(t, map[string]string{"site.yml": playbook, "more.yml": included})
	c, _ := Load(Config{Env: os.Environ(), Playbooks: books})
	vars, _ := json.Marshal(map[string]any{"playbook": "site.yml", "extra_vars": map[string]any{"where": where, "greeting": `it's "quoted" $HOME`}})
	out := &record{}
	end := do(t, t.Context(), c, request("run_playbook", string(vars)), out)
	made, _ := os.ReadFile(filepath.Join(where, "made"))
	if end.Status != "success" || string(made) != `it's "quoted" $HOME` {
		t.Fatalf("%+v, made %q\n%s", end, made, out.output.String())
	}
	want := []string{
		"step 1 Gathering Facts 0%", "done 1 Gathering Facts 25%",
		"step 2 Write a file 25%", "done 2 Write a file 50%",
		"step 3 Include more 50%", "done 3 Include more 75%",
		"step 4 First of more 75%", "done 4 First of more 80%",
		"step 5 Second of more 80%", "done 5 Second of more 83%",
		"step 6 Say something 83%", "done 6 Say something 99%",
	}
	if !slices.Equal(out.steps(), want) {
		t.Errorf("steps\n%q, want\n%q\n%s", out.steps(), want, out.output.String())
	}
	vars = bytes.Replace(vars, []byte(`"where"`), []byte(`"broken":true,"where"`), 1)
	out = &record{}
	end = do(t, t.Context(), c, request("run_playbook", string(vars)), out)
	if end.Status != "failed" || end.ExitCode != 2 || strings.Contains(out.steps()[len(out.steps())-1], "done") {
		t.Errorf("%+v, steps %q\n%s", end, out.steps(), out.output.String())
	}
}
