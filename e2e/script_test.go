package e2e

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts plays testdata/*.txtar. Beside testscript's own commands there are
//
//	house [NAME=VALUE…]       starts an orchestrator for this script
//	runner ID [NAME=VALUE…]   starts a runner and waits until it has registered
//	code N COMMAND ARG…       the command must end with this exit code; stdout and stderr look at what it said
//	keep NAME                 puts what stdout holds, without its line end, into the environment
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			h := &house{tb: env.T().(testing.TB), dir: env.WorkDir}
			for _, kv := range h.env() {
				k, v, _ := strings.Cut(kv, "=")
				env.Setenv(k, v)
			}
			env.Values[houseKey{}] = h
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"house":  cmdHouse,
			"runner": cmdRunner,
			"code":   cmdCode,
			"keep":   cmdKeep,
		},
		RequireUniqueNames: true,
	})
}

type houseKey struct{}

func cmdHouse(ts *testscript.TestScript, _ bool, args []string) {
	ts.Defer(ts.Value(houseKey{}).(*house).up(args...))
}

func cmdRunner(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: runner ID [NAME=VALUE…]")
	}
	ts.Defer(ts.Value(houseKey{}).(*house).runner(args[0], args[1:]...))
}

func cmdCode(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func cmdKeep(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: keep NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}
