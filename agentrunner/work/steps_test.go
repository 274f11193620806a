package work

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`^== (?P<name>.*)$`)
	counted := regexp.MustCompile(`^(?P<n>\d+)/(?P<total>\d+) (.*)$`)
	cases := map[string]struct {
		rule  stepRule
		names []string
		total int
		in    []string // as the pieces come
		want  []string
	}{
		"no steps": {
			rule: stepRule{pattern: named, name: 1}, in: []string{"a\n", "b"},
			want: []string{"a\n", "b"},
		},
		"total unknown": {
			rule: stepRule{pattern: named, name: 1}, in: []string{"x\n== a\ny\n== b\n"},
			want: []string{"x\n", "step 1 a ?%", "== a\ny\n", "done 1 a ?%", "step 2 b ?%", "== b\n", "done 2 b ?%"},
		},
		"total known": {
			rule: stepRule{pattern: named, name: 1}, total: 2, in: []string{"== a\n== b\n"},
			want: []string{"step 1 a 0%", "== a\n", "done 1 a 50%", "step 2 b 50%", "== b\n", "done 2 b 99%"},
		},
		"more than known, never back": {
			rule: stepRule{pattern: named, name: 1}, total: 1, in: []string{"== a\n", "== b\n", "== c\n"},
			want: []string{"step 1 a 0%", "== a\n", "done 1 a 99%", "step 2 b 99%", "== b\n", "done 2 b 99%", "step 3 c 99%", "== c\n", "done 3 c 99%"},
		},
		"nobody had promised this one": {
			rule: stepRule{pattern: named, name: 1, listedByName: true}, total: 2, names: []string{"a", "b"}, in: []string{"== new\n== a\n== b\n"},
			want: []string{"step 1 new 0%", "== new\n", "done 1 new 33%", "step 2 a 33%", "== a\n", "done 2 a 66%", "step 3 b 66%", "== b\n", "done 3 b 99%"},
		},
		"total in the step": {
			rule: stepRule{pattern: counted, name: 3, total: 2}, in: []string{"1/4 a\n2/4 \n"},
			want: []string{"step 1 a 0%", "1/4 a\n", "done 1 a 25%", "step 2 step 2 25%", "2/4 \n", "done 2 step 2 50%"},
		},
		"total announced": {
			rule: stepRule{pattern: named, name: 1, announced: regexp.MustCompile(`(\d+) steps`)}, in: []string{"10 steps\n== a\n"},
			want: []string{"10 steps\n", "step 1 a 0%", "== a\n", "done 1 a 10%"},
		},
		"a line in pieces": {
			rule: stepRule{pattern: named, name: 1}, in: []string{"x\n==", " a", "bc\ny"},
			want: []string{"x\n==", " a", "step 1 abc ?%", "bc\ny", "done 1 abc ?%"},
		},
		"colour and carriage return": {
			rule: stepRule{pattern: named, name: 1}, in: []string{"\x1b[1;32m== a\x1b[0m\r\n"},
			want: []string{"step 1 a ?%", "\x1b[1;32m== a\x1b[0m\r\n", "done 1 a ?%"},
		},
		"an endless line": {
			rule: stepRule{pattern: named, name: 1}, in: []string{strings.Repeat("x", 3*maxLine), "== a\n", "== b\n"},
			want: []string{strings.Repeat("x", 3*maxLine), "== a\n", "step 1 b ?%", "== b\n", "done 1 b ?%"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &record{}
			s := &stepper{rule: &c.rule, out: out, total: c.total, names: c.names}
			for _, p := range c.in {
				s.Output([]byte(p))
			}
			s.completed()
			if !slices.Equal(out.events, c.want) {
				t.Errorf("%q gives\n%q, want\n%q", c.in, out.events, c.want)
			}
		})
	}
}

func TestTotalFromACommand(t *testing.T) {
	t.Parallel()
	c := one(t, `
command: [sh, -c, 'echo "== one"; echo "== two"']
steps:
  pattern: ^== (.*)$
  total: {command: [printf, 'one\n\ntwo\nthree\nfour\n']}
`)
	out := &record{}
	do(t, t.Context(), c, request("x", "{}"), out)
	want := []string{"step 1 one 0%", "done 1 one 25%", "step 2 two 25%", "done 2 two 50%"}
	if !slices.Equal(out.steps(), want) {
		t.Errorf("steps %q, want %q", out.steps(), want)
	}
}
