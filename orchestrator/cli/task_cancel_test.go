package cli

import (
	"reflect"
	"strings"
	"testing"
)

// What the flags of task cancel say is what the API is asked for.
func TestCancelFlags(t *testing.T) {
	t.Parallel()
	for flags, test := range map[string]struct {
		body  map[string]any
		wrong string
	}{
		"":                                  {body: map[string]any{}},
		"--reason no --grace 1500ms":        {body: map[string]any{"reason": "no", "grace_seconds": 2.0}},
		"--signal sigint --force":           {body: map[string]any{"signal": "INT", "force": true}},
		"--grace 1h --signal KILL":          {body: map[string]any{"signal": "KILL", "grace_seconds": 3600.0}},
		"--grace 0s":                        {wrong: "--grace 0s must be more than 0"},
		"--grace 2h":                        {wrong: "at most 1h"},
		"--signal STOP":                     {wrong: `--signal "STOP" is none of TERM, INT, HUP, QUIT, USR1, USR2, KILL`},
		"--grace soon --signal 9 --force=1": {wrong: "--grace"},
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, newStory(idA, "survey_host").started(1, 1))
			_, stderr, code := play(t, t.Context(), f, false, "", append([]string{"task", "cancel", "3f2a"}, strings.Fields(flags)...)...)
			if test.wrong != "" {
				if code != ExitUsage || !strings.Contains(stderr, test.wrong) || len(f.bodies) != 0 {
					t.Errorf("exit %d, %q, asked for %v; want %q and no request", code, stderr, f.bodies, test.wrong)
				}
				return
			}
			if code != 0 || len(f.bodies) != 1 || !reflect.DeepEqual(f.bodies[0], test.body) {
				t.Errorf("exit %d, %q, asked for %v, want %v", code, stderr, f.bodies, test.body)
			}
		})
	}
}
