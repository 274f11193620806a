package work

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// always is what every program gets if the runner has it.
var always = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"}

// environment is what a program of a type gets, whatever the request.
func (c *Catalogue) environment(t *Type) []string {
	env := []string{"PATH=" + defaultPath, "LANG=C.UTF-8", "TERM=dumb"}
	for _, kv := range c.env {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(always, name) || strings.HasPrefix(name, "LC_") || slices.Contains(t.passEnv, name) {
			env = set(env, kv)
		}
	}
	for _, kv := range t.setEnv {
		env = set(env, kv)
	}
	return env
}

// set puts NAME=value in the place of an earlier one.
func set(env []string, kv string) []string {
	name, _, _ := strings.Cut(kv, "=")
	for i, old := range env {
		if strings.HasPrefix(old, name+"=") {
			env[i] = kv
			return env
		}
	}
	return append(env, kv)
}

// environment is what tells a program which attempt it is; no token is ever in it.
func (a Attempt) environment() []string {
	return []string{
		"CHIFFON_TASK_ID=" + string(a.Task),
		"CHIFFON_ATTEMPT=" + strconv.Itoa(a.Number),
		"CHIFFON_REQUEST_ID=" + string(a.Envelope.RequestID),
		"CHIFFON_AGENT_ID=" + string(a.Agent),
		"TRACEPARENT=" + a.traceparent(),
	}
}

// traceparent continues the trace of the task: the root span's id is derived from the task's, so that everybody can
// name it before it is exported.
func (a Attempt) traceparent() string {
	span := sha256.Sum256([]byte(a.Task))
	return "00-" + strings.ReplaceAll(string(a.Envelope.TraceID), "-", "") + "-" + hex.EncodeToString(span[:8]) + "-01"
}
