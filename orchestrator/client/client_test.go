package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chiffon/pkg/token"
)

func TestSubmitIsOneTaskHoweverOftenItIsSent(t *testing.T) {
	t.Parallel()
	var requests []string
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		var body Submission
		data, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(data, &body); err != nil {
			t.Error(err)
		}
		requests = append(requests, body.RequestID)
		switch len(requests) {
		case 1: // taken, and the answer lost
			panic(http.ErrAbortHandler)
		case 2:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, `{"task_id":"t","state":"queued","newer":{"x":1}}`)
		}
	})
	var told []string
	c.Notice(func(text string) { told = append(told, text) })
	task, known, err := c.Submit(t.Context(), Submission{AgentType: "infra", WorkType: "w", Parameters: json.RawMessage(`{}`)})
	if err != nil || !known || task.TaskID != "t" {
		t.Fatalf("Submit = %+v, %v, %v", task, known, err)
	}
	if len(told) != 1 || !strings.HasSuffix(told[0], "; trying again") {
		t.Errorf("told %q, want once that it tries again", told)
	}
	if len(requests) != 3 || requests[0] == "" || requests[1] != requests[0] || requests[2] != requests[0] {
		t.Errorf("request ids = %q, want one id three times", requests)
	}
	if data, _ := json.Marshal(task); string(data) != `{"task_id":"t","state":"queued","newer":{"x":1}}` {
		t.Errorf("encodes to %s, not to what came", data)
	}
}

// Who is refused in the end is told whether an earlier try of the same call may have been carried out, and what holds then.
func TestWhatMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	const id = "8d4cbb3a-3f55-4f1b-9a9e-2a3a4a5a6a7a"
	const refused, letGo = `{"detail":"nothing was done by this call"}`, `{"detail":"it did not answer","error_context":{"maybe_done":true}}`
	submit := func(c *Client) error {
		_, _, err := c.Submit(t.Context(), Submission{AgentType: "infra", WorkType: "w", Parameters: json.RawMessage(`{}`), RequestID: id})
		return err
	}
	cancel := func(c *Client) error {
		_, _, err := c.Cancel(t.Context(), id, Cancellation{})
		return err
	}
	retry := func(c *Client) error {
		_, _, err := c.Retry(t.Context(), id, true)
		return err
	}
	read := func(c *Client) error {
		_, err := c.Task(t.Context(), id)
		return err
	}
	for name, test := range map[string]struct {
		call  func(*Client) error
		first string // the answer to the first try, empty is none; all others are refused
		want  string
	}{
		"a submission that got no answer": {submit, "", "with the same request id it is one task, and that is " + id},
		"a submission that was let go":    {submit, letGo, "with the same request id it is one task, and that is " + id},
		"a submission that was refused":   {submit, refused, ""},
		"a cancel that got no answer":     {cancel, "", "to repeat a cancel is harmless"},
		"a cancel that was refused":       {cancel, refused, ""},
		"another retry that was let go":   {retry, letGo, "look whether there is another task"},
		"a question without an answer":    {read, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			c := quick(t, func(w http.ResponseWriter, _ *http.Request) {
				answer := refused
				if tries++; tries == 1 {
					answer = test.first
				}
				if answer == "" {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, answer)
			})
			err := test.call(c)
			if err == nil || !strings.HasPrefix(err.Error(), "nothing was done by this call") || strings.Contains(err.Error(), "it is not known") != (test.want != "") ||
				!strings.Contains(err.Error(), test.want) || tries < 2 {
				t.Errorf("after %d tries: %v, want %q", tries, err, test.want)
			}
		})
	}
}

// An answer that may be old says so, once while that lasts.
func TestWarning(t *testing.T) {
	t.Parallel()
	warnings := []string{`110 chiffon "the broker has not answered for 3s; this may be old"`, `110 chiffon "the broker has not answered for 4s; this may be old"`,
		"", `110 chiffon "again \"it\""`}
	var told []string
	next := 0
	c := quick(t, func(w http.ResponseWriter, _ *http.Request) {
		if warnings[next] != "" {
			w.Header().Set("Warning", warnings[next])
		}
		next++
		fmt.Fprint(w, `{"agents":[]}`)
	})
	c.Notice(func(text string) { told = append(told, text) })
	for range warnings {
		if _, err := c.Agents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"the broker has not answered for 3s; this may be old", `again "it"`}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		body   string
		want   string
		code   int
	}{
		"problem": {422, `{"title":"Unprocessable","detail":"no agent offers it","error_code":5006,"errors":[{"location":"body.work_type","message":"unknown"}]}`,
			"no agent offers it (5006)\n  body.work_type: unknown", 5006},
		"context": {422, `{"detail":"no agent offers mine_coins","error_code":5006,"error_context":{"supported_types":["noop","survey_host"],"work_type_requested":"mine_coins","last_heartbeat":null,"supported_versions":[]}}`,
			"no agent offers mine_coins (5006)\n  supported_types: noop, survey_host", 5006},
		"context that was said": {422, `{"detail":"there are noop, survey_host","error_code":5006,"error_context":{"supported_types":["noop","survey_host"],"field_name":"x"}}`,
			"there are noop, survey_host (5006)", 5006},
		"title only":  {404, `{"title":"Not Found"}`, "Not Found", 0},
		"no problem":  {502, `<html>bad gateway</html>`, "answered 502 Bad Gateway and nothing an orchestrator would say", 0},
		"a redirect":  {302, ``, "answered 302 Found", 0},
		"empty":       {401, ``, "answered 401", 0},
		"empty value": {500, `{}`, "Internal Server Error", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := quick(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+secret {
					t.Errorf("Authorization = %q", r.Header.Get("Authorization"))
				}
				w.Header().Set("Location", "http://elsewhere.invalid/")
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			_, err := c.Agent(t.Context(), "nas")
			p, ok := errors.AsType[*Problem](err)
			if !ok || p.Status != test.status || p.ErrorCode != test.code || !strings.Contains(p.Error(), test.want) {
				t.Fatalf("problem = %+v (%v), want %d %q", p, err, test.status, test.want)
			}
			if strings.HasPrefix(name, "context") && p.Error() != test.want {
				t.Errorf("problem says %q, want %q", p, test.want)
			}
		})
	}
}

func TestIdsStayInTheirPath(t *testing.T) {
	t.Parallel()
	c := quick(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) })
	for _, id := range []string{"", "..", "a/b", "a?b", "a b", "%2e"} {
		if _, err := c.Task(t.Context(), id); err == nil {
			t.Errorf("Task(%q) is asked for", id)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	c := quick(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query()["state"]; len(got) != 2 || r.FormValue("label") != "a=b c" {
			t.Errorf("query = %v", r.URL.Query())
		}
		switch r.FormValue("cursor") {
		case "":
			fmt.Fprint(w, `{"tasks":[{"task_id":"1"},{"task_id":"2"}],"next_cursor":"x&y"}`)
		case "x&y":
			fmt.Fprint(w, `{"tasks":[{"task_id":"3"}]}`)
		}
	})
	var ids strings.Builder
	for task, err := range c.Tasks(t.Context(), TaskQuery{States: []string{"queued", "held"}, Labels: map[string]string{"a": "b c"}}) {
		if err != nil {
			t.Fatal(err)
		}
		ids.WriteString(task.TaskID)
	}
	if ids.String() != "123" {
		t.Errorf("tasks = %s, want 123", ids.String())
	}
	if _, err := gone(t).Page(t.Context(), TaskQuery{}); !unreachable(err) {
		t.Errorf("nobody there: %v, want Unreachable", err)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	const other = "ffffffffffffffffffffffffffffffff"
	file := func(url, token string) string { return fmt.Sprintf(`{"url":%q,"token":%q}`, url, token) }
	tests := map[string]struct {
		place       Place
		files       map[string]string
		mode        fs.FileMode
		url, secret string
		wrong       string
	}{
		"state directory": {files: map[string]string{"state/admin.json": file("http://127.0.0.1:9000", secret)},
			url: "http://127.0.0.1:9000", secret: secret},
		"client.json is first": {files: map[string]string{"state/admin.json": file("http://127.0.0.1:9000", secret), "config/chiffon/client.json": file("https://hub", other)},
			url: "https://hub", secret: other},
		"flag, credential by address": {place: Place{Server: "http://localhost:9000"},
			files: map[string]string{"state/admin.json": file("http://127.0.0.1:9000", secret), "config/chiffon/client.json": file("https://hub", other)},
			url:   "http://localhost:9000", secret: secret},
		"a token is shown to its own server only": {place: Place{URL: "http://127.0.0.1:9001"},
			files: map[string]string{"state/admin.json": file("http://127.0.0.1:9000", secret)},
			url:   "http://127.0.0.1:9001", wrong: "no credential for http://127.0.0.1:9001"},
		"token file": {place: Place{URL: "https://hub", TokenFile: "token"}, files: map[string]string{"token": other},
			url: "https://hub", secret: other},
		"nothing":         {url: DefaultURL, wrong: "orchestrator up"},
		"bad address":     {place: Place{Server: "hub:80"}, url: "hub:80", wrong: "--server"},
		"others may read": {files: map[string]string{"state/admin.json": file("http://127.0.0.1:9000", secret)}, mode: 0o644, wrong: "chmod 600"},
		"bad token":       {files: map[string]string{"state/admin.json": file("http://127.0.0.1:9000", "short")}, url: "http://127.0.0.1:9000", wrong: "token in"},
		"bad JSON":        {files: map[string]string{"state/admin.json": "{"}, wrong: "admin.json"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range test.files {
				path := filepath.Join(dir, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
				if test.mode != 0 {
					os.Chmod(path, test.mode)
				}
			}
			p := test.place
			p.State, p.Config = filepath.Join(dir, "state"), filepath.Join(dir, "config")
			if p.TokenFile != "" {
				p.TokenFile = filepath.Join(dir, p.TokenFile)
			}
			found, err := p.Find()
			if found.URL != test.url && test.url != "" || found.Credential.Reveal() != test.secret {
				t.Errorf("Find = %s, %q, want %s, %q", found.URL, found.Credential.Reveal(), test.url, test.secret)
			}
			if (err != nil) != (test.wrong != "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("Find: %v, want %q", err, test.wrong)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("error shows the token: %v", err)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "hub", "hub:80", "ftp://hub", "http://", "http://u:p@hub", "http://hub?x=1", "::"} {
		if _, err := New(address, token.Token{}); err == nil {
			t.Errorf("New(%q) is accepted", address)
		}
	}
}
