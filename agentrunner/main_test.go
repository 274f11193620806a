package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/tasklog"
)

func TestRegistersWorksAndDrains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	state := w.state(map[string]string{"gate": gate})
	p := w.run(state, "AGENTRUNNER_SLOTS=2", "AGENTRUNNER_LABELS=site=attic", "AGENTRUNNER_CAPABILITIES=docker,gpu")
	hb := w.listens("with its offers", func(hb message.Heartbeat) bool { return offers(hb, "gate") && offers(hb, "noop") })
	if hb.AgentID != "one" || hb.Slots != 2 || hb.Labels["site"] != "attic" || !slices.Contains(hb.Capabilities, "gpu") ||
		hb.State != "ready" || hb.Boot == 0 || hb.Instance == "" || hb.Host == "" {
		t.Errorf("heartbeat %+v", hb)
	}
	w.entry(w.submit("noop", ""), tasklog.Succeeded)

	w.write(filepath.Join(state, "types", "new.yaml"), "command: [\"true\"]\n")
	p.signal(syscall.SIGHUP)
	w.listens("with the new work type", func(hb message.Heartbeat) bool { return offers(hb, "new") })

	door := filepath.Join(t.TempDir(), "door")
	id := w.submit("gate", door)
	w.appears(door + ".up")
	w.listens("with what runs", func(hb message.Heartbeat) bool { return len(hb.Running) == 1 && hb.Running[0].TaskID == id })
	p.signal(syscall.SIGTERM)
	w.listens("while it drains", func(hb message.Heartbeat) bool { return hb.State == "draining" && len(hb.Running) == 1 })
	w.write(door+".go", "")
	w.entry(id, tasklog.Succeeded)
	if code, log := p.exits(); code != 0 || !strings.Contains(log, "agentrunner is drained") {
		t.Errorf("exit code %d", code)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		env  string
		code int
		want string
	}{
		"a broker elsewhere": {"NATS_URL=nats://192.0.2.1:4222", 1, "NATS_URL: 192.0.2.1:4222 is not on a loopback address"},
		"a wrong setting":    {"AGENTRUNNER_SLOTS=many", 1, `AGENTRUNNER_SLOTS: "many" is not a whole number`},
		"a misspelt setting": {"AGENTRUNNER_SLOT=2", 1, "did you mean AGENTRUNNER_SLOTS?"},
		"a reserved id":      {"AGENTRUNNER_ID=any", 1, "AGENTRUNNER_ID"},
	} {
		if code, log := w.run(w.state(nil), test.env).exits(); code != test.code || !strings.Contains(log, test.want) {
			t.Errorf("%s: exit code %d, said %q, want %d and %q", name, code, log, test.code, test.want)
		}
	}
	state := w.state(nil)
	w.run(state)
	w.listens("of the first", func(message.Heartbeat) bool { return true })
	if code, log := w.run(state).exits(); code != 1 || !strings.Contains(log, "another agentrunner uses it") {
		t.Errorf("a second process: exit code %d, said %q", code, log)
	}
	for name, reply := range map[string]message.HeartbeatReply{
		"refused":  {Error: new(message.FailureOf(fault.New(fault.AuthenticationFailed, "another type has this id")))},
		"replaced": {StopAll: true},
	} {
		w.mu.Lock()
		w.reply = reply
		w.mu.Unlock()
		if code, log := w.run(w.state(nil)).exits(); code != 4 {
			t.Errorf("%s: exit code %d, said %q, want 4", name, code, log)
		}
	}
}

func TestCheckAndVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := map[string]string{
		"good.yaml":    "command: [\"true\"]\n",
		"missing.yaml": "command: [no-such-program-here]\n",
		"bad.yaml":     "comand: [\"true\"]\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		args []string
		ok   bool
		want []string
	}{
		"good":    {[]string{"check", filepath.Join(dir, "good.yaml")}, true, []string{"good", "offered"}},
		"missing": {[]string{"check", filepath.Join(dir, "missing.yaml")}, true, []string{"not offered", "no-such-program-here"}},
		"bad": {[]string{"check", filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "good.yaml")}, false,
			[]string{filepath.Join(dir, "bad.yaml") + ":1: ", "command", "good"}},
		"version": {[]string{"version"}, true, []string{"agentrunner ", "protocol 1.0"}},
		"help":    {nil, true, []string{"agentrunner check [FILE…]"}},
		"unknown": {[]string{"dance"}, false, nil},
		"excess":  {[]string{"version", "please"}, false, nil},
	} {
		var out bytes.Buffer
		err := command(t.Context(), nil, test.args, &out, &out)
		if (err == nil) != test.ok {
			t.Errorf("%s: command(%q) = %v", name, test.args, err)
		}
		for _, want := range test.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: command(%q) printed %q, want %q in it", name, test.args, out.String(), want)
			}
		}
	}
}
