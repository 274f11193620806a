package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

func TestSubmissionIsWhatTheFlagsSay(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.submit = submitted
	_, stderr, code := play(t, t.Context(), f, false, `{"deep":{"a":1}}`, "submit", "infra", "survey_host", "--params", "-", "-p", "deep.b=[2]",
		"--priority", "high", "--agent", "nas", "--on", "site=attic", "--on", "os=debian", "--needs", "docker,gpu", "--label", "app=web",
		"--name", "a name", "--max-duration", "1500ms", "--queue-timeout", "2m", "--request-id", reqID)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	want := map[string]any{
		"agent_type": "infra", "work_type": "survey_host", "parameters": map[string]any{"deep": map[string]any{"a": 1.0, "b": []any{2.0}}},
		"priority": "high", "agent": "nas", "on": map[string]any{"site": "attic", "os": "debian"}, "needs": []any{"docker", "gpu"},
		"labels": map[string]any{"app": "web"}, "name": "a name", "hints": map[string]any{"max_duration_seconds": 2.0},
		"queue_timeout_seconds": 120.0, "request_id": reqID,
	}
	if !reflect.DeepEqual(f.bodies[0], want) {
		t.Errorf("submitted %v, want %v", f.bodies[0], want)
	}
	f.submit = func(map[string]any) *story { return f.stories[0] }
	if _, stderr, _ := play(t, t.Context(), f, false, "", "submit", "infra", "survey_host"); !strings.Contains(stderr, "was handed in before; its state is succeeded") {
		t.Errorf("a repetition says %q", stderr)
	}
}

// A flag that is given without a sense is an error that names it, and nothing is submitted.
func TestFlagsWithoutSense(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags []string
		wrong string
	}{
		"no time":       {[]string{"--max-duration", "0"}, "--max-duration: 0s is too short"},
		"negative time": {[]string{"--max-duration", "-1s"}, "--max-duration: -1s is too short"},
		"no queue time": {[]string{"--queue-timeout", "0"}, "--queue-timeout: 0s is too short"},
		"no capability": {[]string{"--needs", ""}, "--needs: a capability is empty"},
		"a hole":        {[]string{"--needs", "a,,b"}, "--needs: a capability is empty"},
		"no agent":      {[]string{"--agent", ""}, "--agent: "},
		"no request":    {[]string{"--request-id", ""}, "--request-id: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.submit = submitted
			_, stderr, code := play(t, t.Context(), f, false, "", append([]string{"submit", "infra", "survey_host"}, test.flags...)...)
			if code != ExitUsage || !strings.Contains(stderr, test.wrong) || len(f.bodies) != 0 {
				t.Errorf("exit %d, %q, submitted %v, want %q", code, stderr, f.bodies, test.wrong)
			}
		})
	}
}

func TestInterruptedFollowersSayThatTheTaskGoesOn(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"task watch 3f2a", "submit infra survey_host --follow", "submit infra survey_host --wait", "run -- sleep 9", "task logs 3f2a -f"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			running := newStory(idA, "survey_host").started(1, 1).status(2, 10, 1, "System", "x\n")
			f := newFake(t, running)
			f.submit = func(map[string]any) *story { return running }
			ctx, cancel := context.WithCancel(t.Context())
			var talk bytes.Buffer
			p := player(t, f, false, new(bytes.Buffer), &talk)
			p.curious = 10 * time.Millisecond
			p.out.w = writer(func(text []byte) (int, error) {
				cancel() // as soon as anything was shown
				return len(text), nil
			})
			err := p.run(ctx, strings.Fields(args))
			if ExitCode(err) != ExitInterrupted || !strings.Contains(err.Error(), "the task goes on") || !strings.Contains(err.Error(), "orchestrator task cancel 3f2a") {
				t.Errorf("exit %d, %v", ExitCode(err), err)
			}
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestFollowersSayWhyATaskDoesNotBegin(t *testing.T) {
	t.Parallel()
	waiting := newStory(idA, "survey_host")
	waiting.WaitingFor = "an agent of type infra: none is known"
	f := newFake(t, waiting)
	ctx, cancel := context.WithCancel(t.Context())
	p := player(t, f, false, nil, new(bytes.Buffer))
	p.curious = time.Millisecond
	var shown strings.Builder
	p.out.w = writer(func(text []byte) (int, error) {
		shown.Write(text)
		if strings.Contains(string(text), "waiting for an agent of type infra") {
			cancel()
		}
		return len(text), nil
	})
	if err := p.run(ctx, []string{"task", "watch", "3f2a"}); ExitCode(err) != ExitInterrupted {
		t.Errorf("exit %d, %v; shown %s", ExitCode(err), err, shown.String())
	}
}

func TestWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var out, talk bytes.Buffer
	p := player(t, f, false, &out, &talk)
	if err := os.WriteFile(p.env("ORCHESTRATOR_TOKEN_FILE"), []byte(strings.Repeat("f", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	err := p.run(t.Context(), []string{"task", "list"})
	if ExitCode(err) != ExitNotAllowed || !strings.Contains(err.Error(), "refused the credential of "+p.env("ORCHESTRATOR_TOKEN_FILE")) {
		t.Errorf("exit %d, %v", ExitCode(err), err)
	}
	err = p.exit(&client.NoCredential{URL: "u", Denied: "/f/admin.json", Cure: "be somebody else", Err: os.ErrPermission})
	if ExitCode(err) != ExitNotAllowed || !strings.Contains(err.Error(), "/f/admin.json") {
		t.Errorf("exit %d, %v", ExitCode(err), err)
	}
	if err := p.exit(errors.New("x\x1b[2J\ny")); err.Error() != "x\\x1b[2J\ny" || ExitCode(err) != ExitUsage {
		t.Errorf("an error of others is shown as %q", err)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Server.Close()
	_, stderr, code := play(t, t.Context(), f, false, "", "task", "list")
	if code != ExitUsage || !strings.Contains(stderr, "no answer from "+f.URL) || !strings.Contains(stderr, "orchestrator up") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if stdout, _, code := play(t, t.Context(), f, false, "", "doctor"); code != ExitUsage || !strings.Contains(stdout, "FAIL  server") {
		t.Errorf("doctor: exit %d: %s", code, stdout)
	}
	p := player(t, nil, false, new(bytes.Buffer), new(bytes.Buffer))
	env := p.env
	p.env = func(k string) string {
		if k == "ORCHESTRATOR_TOKEN_FILE" {
			return ""
		}
		return env(k)
	}
	if err := p.run(t.Context(), []string{"task", "list"}); ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), "no credential for http://127.0.0.1:8422") {
		t.Errorf("exit %d, %v", ExitCode(err), err)
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0.0s", 1290 * time.Millisecond: "1.2s", 59 * time.Second: "59s", 61 * time.Second: "1m01s",
		3 * time.Hour: "3h00m", 47*time.Hour + 59*time.Minute: "47h59m", 48 * time.Hour: "2d",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestStatesHaveColours(t *testing.T) {
	t.Parallel()
	for _, state := range view.States {
		if stateColours[state] == "" {
			t.Errorf("state %s has no colour", state)
		}
	}
}

// TestDocument holds docs/cli.md to the code: every command has its heading there and no other has, and the exit codes are the same.
func TestDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^### `([a-z ]+)").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, strings.TrimSpace(m[1]))
	}
	var known []string
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "completion" {
			known = append(known, "completion")
			return
		}
		if !c.HasSubCommands() && c.Name() != "help" {
			known = append(known, below(c))
			if c.Example == "" || c.Short == "" {
				t.Errorf("%s has no example or no short text", c.CommandPath())
			}
			return
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&program{}))
	slices.Sort(known)
	slices.Sort(documented)
	if !slices.Equal(known, documented) {
		t.Errorf("commands\n%q, in docs/cli.md\n%q", known, documented)
	}
	var codes []string
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(string(text), -1) {
		codes = append(codes, m[1])
	}
	if want := []string{"0", "1", "2", "3", "4", "5", "130"}; !slices.Equal(codes, want) {
		t.Errorf("exit codes in docs/cli.md: %q, want %q", codes, want)
	}
	for _, flag := range flagsOf(newRoot(&program{})) {
		if !strings.Contains(string(text), "--"+flag) {
			t.Errorf("docs/cli.md does not know --%s", flag)
		}
	}
}

func flagsOf(c *cobra.Command) (names []string) {
	if c.Name() == "completion" {
		return nil
	}
	visit := func(f *pflag.Flag) { names = append(names, f.Name) }
	c.LocalFlags().VisitAll(visit)
	for _, sub := range c.Commands() {
		names = append(names, flagsOf(sub)...)
	}
	return names
}
