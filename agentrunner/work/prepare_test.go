package work

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
)

// refused returns the fault of a request that must not be accepted.
func refused(t *testing.T, c *Catalogue, r message.WorkRequest, submitter string) *fault.Fault {
	t.Helper()
	w, err := c.Prepare(r, submitter)
	flt, ok := err.(*fault.Fault)
	if !ok || w != nil {
		t.Fatalf("Prepare(%s %s) = %v, %v; want a fault", r.WorkType, r.Parameters, w, err)
	}
	return flt
}

func wantInvalid(t *testing.T, c *Catalogue, r message.WorkRequest, field string) {
	t.Helper()
	if flt := refused(t, c, r, ""); flt.Code != fault.InvalidMessage || flt.Field() != field {
		t.Errorf("Prepare(%s %s): %v, field %q; want 5003 of %s", r.WorkType, r.Parameters, flt, flt.Field(), field)
	}
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	root := roots(t, map[string]string{"a.txt": "", "sub/b.txt": ""})
	if err := os.Symlink("/etc/passwd", filepath.Join(root, "out.txt")); err != nil {
		t.Fatal(err)
	}
	file := "root: " + root + `
in_root: [f]
command: [echo, {param: a}, {each: l}, {option: --o, param: o}, {param: f}]
allow: [ops]
parameters:
  type: object
  additionalProperties: false
  properties: {a: {}, l: {type: array}, o: {}, f: {type: string}, n: {type: integer, maximum: 5}}
`
	c := one(t, file)
	cases := map[string]struct{ params, field string }{
		"schema":                 {`{"n":6}`, "n"},
		"unknown":                {`{"z":1}`, "z"},
		"option for an operand":  {`{"a":"-rf"}`, "a"},
		"number with a dash":     {`{"a":-1}`, "a"},
		"option in a list":       {`{"l":["x","--y"]}`, "l"},
		"option for an option":   {`{"o":"-x"}`, "o"},
		"NUL":                    {`{"a":"x\u0000y"}`, "a"},
		"object for an argument": {`{"a":{}}`, "a"},
		"list for an argument":   {`{"a":[1]}`, "a"},
		"missing file":           {`{"f":"none"}`, "f"},
		"out of the root":        {`{"f":"../x"}`, "f"},
		"absolute":               {`{"f":"/etc/passwd"}`, "f"},
		"link out of the root":   {`{"f":"out.txt"}`, "f"},
		"NUL in a file name":     {`{"f":"a\u0000"}`, "f"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flt := refused(t, c, request("x", tc.params), "ops")
			if flt.Code != fault.InvalidMessage || flt.Field() != "payload.parameters."+tc.field {
				t.Errorf("Prepare(%s): %v, field %q", tc.params, flt, flt.Field())
			}
		})
	}
	t.Run("a file is found below the root", func(t *testing.T) {
		out := &record{}
		w, err := c.Prepare(request("x", `{"f":"sub/../sub/b.txt"}`), "ops")
		if err != nil {
			t.Fatal(err)
		}
		w.Work(t.Context(), attempt(t, request("x", "{}")), out)
		if want := root + "/sub/b.txt\n"; out.output.String() != want {
			t.Errorf("output %q, want %q", out.output.String(), want)
		}
	})
	if flt := refused(t, c, request("x", "{}"), "other"); flt.Code != fault.AuthenticationFailed {
		t.Errorf("another submitter: %v", flt)
	}
	flt := refused(t, c, request("nothing", "{}"), "ops")
	if supported, _ := flt.Context["supported_types"].([]string); flt.Code != fault.UnsupportedWorkType || !slices.Contains(supported, "x") {
		t.Errorf("unknown work type: %v %v", flt, flt.Context)
	}
	if flt := refused(t, c, request("run_command", `{"argv":["id"]}`), "ops"); flt.Code != fault.UnsupportedWorkType || !strings.Contains(flt.Message, "AGENTRUNNER_ALLOW_COMMANDS") {
		t.Errorf("work type that is not offered: %v", flt)
	}
}

func TestPermitted(t *testing.T) {
	t.Parallel()
	cases := []struct {
		pattern, command string
		want             bool
	}{
		{"*", "rm -rf /", true},
		{"*", "./x/../rm", false},
		{"uptime", "uptime", true},
		{"uptime", "uptime -p", true},
		{"uptime", "/usr/bin/uptime", false},
		{"uptime", "uptimes", false},
		{"/usr/bin/*", "/usr/bin/id -u", true},
		{"/usr/bin/*", "/usr/bin/../../tmp/x", false},
		{"/usr/bin/*", "/usr/sbin/x", false},
		{"systemctl status *", "systemctl status nginx", true},
		{"systemctl status *", "systemctl status", true},
		{"systemctl status *", "systemctl stop nginx", false},
		{"systemctl restart web-*", "systemctl restart web-1", true},
		{"systemctl restart web-*", "systemctl restart web-1 db", false},
		{"systemctl restart web-*", "systemctl restart", false},
		{"git *-pack* x", "git a-pack-b x", true},
		{"a*b*c", "abc", true},
		{"a*a", "a", false},
	}
	for _, c := range cases {
		if got := permitted([]string{"never", c.pattern}, strings.Fields(c.command)); got != c.want {
			t.Errorf("permitted(%q, %q) = %v", c.pattern, c.command, got)
		}
	}
}
