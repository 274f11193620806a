//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
)

const site = `
- name: Site
  hosts: all
  gather_facts: false
  tasks:
    - name: Make the folder
      ansible.builtin.file: {path: "{{ where }}", state: directory, mode: "0755"}
    - name: Write the version
      ansible.builtin.copy: {dest: "{{ where }}/version", content: "{{ version }}|{{ count + 1 }}|{{ quoted }}"}
    - name: More of it
      ansible.builtin.include_tasks: more.yml
      loop: [a, b]
    - name: Read it back
      ansible.builtin.command: cat "{{ where }}/version"
      register: back
      changed_when: false
    - name: Compare
      ansible.builtin.assert:
        that: back.stdout == "1.4.0|42|it's \"so\"; $(id)"
`

const more = `
- name: Touch a file
  ansible.builtin.file: {path: "{{ where }}/{{ item }}", state: touch, mode: "0644"}
`

const broken = `
- name: Broken
  hosts: all
  gather_facts: false
  tasks:
    - name: Still fine
      ansible.builtin.command: echo fine
      changed_when: false
    - name: This one fails
      ansible.builtin.command: sh -c 'echo no good >&2; exit 4'
    - name: Never reached
      ansible.builtin.command: echo never
`

func playbooks(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Fatal("ansible-playbook is not installed: .ci/run installs it")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"site.yml": site, "more.yml": more, "broken.yml": broken} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// story is everything that the API tells of a task.
func story(t *testing.T, h *house, id string) (events []view.Event) {
	t.Helper()
	out, err := h.cli("task", "logs", id, "-o", "json").Output()
	if err != nil {
		t.Fatalf("task logs %s -o json: %v", id, err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var e view.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("event %s: %v", lines.Bytes(), err)
		}
		events = append(events, e)
	}
	return events
}

// steps are the names of completed steps, in order, and every percent that was told.
func steps(t *testing.T, events []view.Event) (names []string, percents []int) {
	t.Helper()
	for _, e := range events {
		if e.Kind != "status" {
			continue
		}
		m, err := message.Decode[message.WorkStatus](e.Message)
		if err != nil {
			t.Fatalf("status %s: %v", e.Message, err)
		}
		if m.Payload.Status == message.StatusStepCompleted {
			names = append(names, m.Payload.Step.Name)
		}
		if p := m.Payload.ProgressPercent; p != nil {
			percents = append(percents, *p)
		}
	}
	return names, percents
}

func show(t *testing.T, h *house, id string) (task view.Task) {
	t.Helper()
	out, err := h.cli("task", "show", id, "-o", "json").Output()
	if err != nil {
		t.Fatalf("task show %s: %v", id, err)
	}
	if err := json.Unmarshal(out, &task); err != nil {
		t.Fatalf("task show %s: %v in %s", id, err, out)
	}
	return task
}

func submitted(t *testing.T, h *house, args ...string) (id string) {
	t.Helper()
	out, err := h.cli(append([]string{"submit"}, args...)...).Output()
	if err != nil {
		t.Fatalf("submit %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func TestAnsiblePlaybook(t *testing.T) {
	h := open(t)
	h.runner("attic", "AGENTRUNNER_PLAYBOOKS="+playbooks(t))
	where := filepath.Join(t.TempDir(), "new")

	t.Run("success", func(t *testing.T) {
		id := submitted(t, h, "infra", "run_playbook", "-p", "playbook=site.yml", "-p", "extra_vars.where="+where,
			"-p", `extra_vars.version="1.4.0"`, "-p", "extra_vars.count=41", "-p", `extra_vars.quoted="it's \"so\"; $(id)"`)
		if got, out := code(t, h.cli("task", "watch", id)); got != 0 {
			_, logs := code(t, h.cli("task", "logs", id))
			t.Fatalf("task watch ended with %d:\n%s\n%s", got, out, logs)
		}
		task := show(t, h, id)
		if task.State != view.Succeeded || task.Result == nil || task.Result.ExitCode != 0 || task.AgentID != "attic" || task.Attempts != 1 {
			t.Errorf("task = %+v, want it succeeded on attic, with one attempt allowed", task)
		}
		if u := task.Result.ResourcesUsed; u.DurationSeconds < 1 || u.CPUTimeMS < 100 {
			t.Errorf("resources_used = %+v: a playbook takes more than that", u)
		}
		if !strings.Contains(task.Result.Output, "PLAY RECAP") || !strings.Contains(task.Result.Output, "failed=0") {
			t.Errorf("output of the result:\n%s", task.Result.Output)
		}
		names, percents := steps(t, story(t, h, id))
		want := []string{"Make the folder", "Write the version", "More of it", "Touch a file", "Touch a file", "Read it back", "Compare"}
		if !slices.Equal(names, want) {
			t.Errorf("steps = %q, want %q", names, want)
		}
		if !slices.IsSorted(percents) || len(percents) == 0 || percents[len(percents)-1] >= 100 {
			t.Errorf("percents = %v: they must grow and stay below 100 before the end", percents)
		}
		if logs, err := h.cli("task", "logs", id).Output(); err != nil || !bytes.Contains(logs, []byte("TASK [Compare]")) || int64(len(logs)) != task.Result.OutputBytes {
			t.Errorf("task logs: %d bytes, %v, want all %d:\n%s", len(logs), err, task.Result.OutputBytes, logs)
		}
		if _, err := os.Stat(filepath.Join(where, "b")); err != nil {
			t.Errorf("the playbook did nothing: %v", err)
		}
	})

	t.Run("failure", func(t *testing.T) {
		got, out := code(t, h.cli("submit", "infra", "run_playbook", "-p", "playbook=broken.yml", "--wait", "-o", "json"))
		if got != 3 {
			t.Fatalf("submit --wait ended with %d, want 3 (failed):\n%s", got, out)
		}
		list, err := h.cli("task", "list", "--state", "failed", "-o", "json").Output()
		var page struct {
			Tasks []view.Task `json:"tasks"`
		}
		if err != nil || json.Unmarshal(list, &page) != nil || len(page.Tasks) != 1 {
			t.Fatalf("task list --state failed: %v: %s", err, list)
		}
		task := show(t, h, page.Tasks[0].TaskID)
		if task.Result == nil || task.Result.ExitCode != 2 || !strings.Contains(task.Result.Output, "no good") {
			t.Errorf("result = %+v, want ansible-playbook's exit code 2 and what failed", task.Result)
		}
		names, _ := steps(t, story(t, h, task.TaskID))
		if len(names) == 0 || names[0] != "Still fine" || slices.Contains(names, "Never reached") {
			t.Errorf("steps = %q", names)
		}
	})

	t.Run("names lead nowhere else", func(t *testing.T) {
		for _, name := range []string{"../site.yml", "/etc/passwd", "-e@/etc/passwd", "missing.yml"} {
			got, out := code(t, h.cli("submit", "infra", "run_playbook", "-p", "playbook="+name, "--wait"))
			if got == 0 || got == 3 || !strings.Contains(out, "5003") {
				t.Errorf("playbook=%s ended with %d, want fault 5003:\n%s", name, got, out)
			}
		}
	})
}
