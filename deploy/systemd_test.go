package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maxExposure is the score of systemd-analyze security that the orchestrator has to stay below (0 best, 10 worst).
const maxExposure = 3.0

// analyze runs systemd-analyze over a unit whose program is made to exist, and returns all that it printed.
func analyze(t *testing.T, name, text string, args ...string) (string, error) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed here; .ci/run installs it")
	}
	there, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^(ExecStart=)/usr/local/bin/\w+`).ReplaceAllString(text, "${1}"+there)
	unit := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), tool, append(args, unit)...)
	cmd.Env = append(os.Environ(), "SYSTEMD_COLORS=0", "SYSTEMD_EMOJI=0", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// verify returns what systemd has to say about a unit: nothing, when it is right.
func verify(t *testing.T, name, text string) string {
	t.Helper()
	out, err := analyze(t, name, text, "verify", "--man=no")
	if err != nil {
		out += fmt.Sprintf("(%v)", err)
	}
	return out
}

// newerKey is what a systemd before 254 says of a key that it does not know and passes over.
var newerKey = regexp.MustCompile(`(?m)^.* Unknown key.* 'DelegateSubgroup' .*\n`)

func TestUnits(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"orchestrator", "agentrunner"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			name := "chiffon-" + program + ".service"
			unit := string(read(t, filepath.Join("systemd", name)))
			for _, want := range []string{
				"EnvironmentFile=-/etc/chiffon/" + program + ".env\n",
				"ExecStart=/usr/local/bin/" + program + " ",
				"StateDirectory=chiffon/" + program + "\n",
				"StateDirectoryMode=0700\n",
			} {
				if !strings.Contains(unit, "\n"+want) {
					t.Errorf("%s: no line %q", name, want)
				}
			}
			if out := newerKey.ReplaceAllString(verify(t, name, unit), ""); out != "" {
				t.Errorf("systemd-analyze verify %s prints:\n%s", name, out)
			}
			// An unknown key is a warning with exit code 0, so the output is what counts.
			if out := verify(t, name, strings.Replace(unit, "\nRestart=", "\nRestrat=", 1)); !strings.Contains(out, "Restrat") {
				t.Errorf("verify does not find a misspelt key: %q", out)
			}
		})
	}
}

func TestOrchestratorIsHardened(t *testing.T) {
	t.Parallel()
	name := "chiffon-orchestrator.service"
	out, err := analyze(t, name, string(read(t, "systemd/"+name)), "security", "--offline=yes", "--no-pager")
	if err != nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	found := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no score in\n%s", out)
	}
	if score, err := strconv.ParseFloat(found[1], 64); err != nil || score >= maxExposure {
		t.Errorf("exposure %s, %v; want below %v\n%s", found[1], err, maxExposure, out)
	}
}

// A stop must leave the runner the time that its own settings promise to its tasks.
func TestStopOutlastsDrain(t *testing.T) {
	t.Parallel()
	drain := regexp.MustCompile(`(?m)^#AGENTRUNNER_DRAIN=(\S+)$`).FindSubmatch(read(t, "systemd/agentrunner.env"))
	stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindSubmatch(read(t, "systemd/chiffon-agentrunner.service"))
	if drain == nil || stop == nil {
		t.Fatalf("drain %q, TimeoutStopSec %q: not found", drain, stop)
	}
	wait, err := time.ParseDuration(string(drain[1]))
	if err != nil {
		t.Fatal(err)
	}
	limit, err := time.ParseDuration(string(stop[1]) + "s")
	if err != nil {
		t.Fatal(err)
	}
	if grace := 10 * time.Second; limit <= wait+grace {
		t.Errorf("TimeoutStopSec %v, want more than drain %v and grace %v", limit, wait, grace)
	}
}
