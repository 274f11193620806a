package work

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"chiffon/pkg/message"
)

func TestProblems(t *testing.T) {
	t.Parallel()
	const schema = "\nparameters:\n  type: object\n  properties:\n    name: {type: string}\n    list: {type: array}\n"
	cases := map[string]struct {
		file string
		want string // "line: message and cure", or a part of it
	}{
		"empty":                     {"", "the file is empty"},
		"no YAML":                   {"command: [echo\n", "not YAML"},
		"tab":                       {"command: [echo]\nlimits:\n\tx: 1\n", "3: not YAML"},
		"two documents":             {"command: [echo]\n---\ncommand: [echo]\n", "more than one document"},
		"a list":                    {"- command\n", "1: the work type must hold keys"},
		"unknown key":               {"command: [echo]\ndescripton: x\n", `2: unknown key "descripton" in the work type: did you mean description?`},
		"unknown key, none near":    {"command: [echo]\nwhatever: x\n", "known: name, description"},
		"duplicate key":             {"command: [echo]\nroot: /\nroot: /\n", `3: "root" stands twice in the work type`},
		"duplicate in the schema":   {"command: [echo]\nparameters:\n  type: object\n  type: object\n", `4: "type" stands twice in an object`},
		"anchor":                    {"command: &a [echo]\n", "1: anchors"},
		"alias":                     {"env: {set: {A: &x b, B: *x}}\ncommand: [echo]\n", "1: anchors"},
		"name":                      {"name: Big Name\ncommand: [echo]\n", `1: "Big Name" is no name`},
		"nothing to run":            {"description: x\n", "1: there is nothing to run: add command"},
		"a shell line":              {"command: echo hello\n", "1: command must be a list of arguments: write command: [program, argument]; no shell"},
		"empty command":             {"command: []\n", "must be a list"},
		"program from a parameter":  {"command: [{param: name}]" + schema, "1: a parameter cannot be the program"},
		"argv without programs":     {"command: [{argv: list}]" + schema, "1: a parameter names the program"},
		"programs without argv":     {"command: [echo]\nprograms: [x]\n", "2: programs has no meaning"},
		"unknown parameter":         {"command: [echo, {param: nmae}]" + schema, `1: no parameter is called "nmae": did you mean name?`},
		"each of a string":          {"command:\n- echo\n- {each: name}" + schema, "3: parameter name is of type string, here it must be array"},
		"flag of a string":          {"command: [echo, {flag: --name}]" + schema, "must be boolean"},
		"param of a list":           {"command: [echo, {param: list}]" + schema, "must be string or number"},
		"argument without source":   {"command: [echo, {option: -x}]", "says not where its value comes from"},
		"unknown argument key":      {"command: [echo, {parm: name}]" + schema, "did you mean param?"},
		"script without shebang":    {"script: echo hello\n", "1: script does not say what runs it: begin it with #!/bin/sh"},
		"script that is not there":  {"command: [sh, {script: true}]\n", "there is no script"},
		"unless without put":        {"command: [echo, {unless: name}]" + schema, "unless and put belong together"},
		"prefix of text":            {"command: [echo, {param: name, prefix: x}]" + schema, "prefix stands only"},
		"schema of no object":       {"command: [echo]\nparameters: {type: array}\n", "2: parameters is no JSON Schema of an object: begin it with type: object"},
		"schema that is none":       {"command: [echo]\nparameters: {type: object, properties: {x: {type: strng}}}\n", "2: parameters"},
		"schema from elsewhere":     {"command: [echo]\nparameters: {type: object, $ref: 'http://127.0.0.1:1/x'}\n", "2: parameters"},
		"stdin":                     {"command: [cat]\nstdin: all\n", "2: stdin is wrong: write none, parameters"},
		"relative root":             {"command: [cat]\nroot: x\n", "2: root is no absolute path"},
		"in_root without root":      {"command: [cat]\nin_root: [name]" + schema, "2: in_root has no root"},
		"in_root unknown":           {"command: [cat]\nroot: /\nin_root: [x]" + schema, `3: no parameter is called "x"`},
		"token passed on":           {"command: [cat]\nenv: {pass: [AGENTRUNNER_TOKEN]}\n", "2: AGENTRUNNER_TOKEN cannot be passed on"},
		"env no name":               {"command: [cat]\nenv: {set: {'a=b': c}}\n", "2: a=b must be a name"},
		"attempts":                  {"command: [cat]\nattempts: 0\n", "2: attempts must be a whole number from 1 up"},
		"concurrency":               {"command: [cat]\nconcurrency: many\n", "2: concurrency must be a whole number"},
		"limits":                    {"command: [cat]\nlimits: {max_duration: 5}\n", "2: unknown key"},
		"size":                      {"command: [cat]\nlimits: {max_output: 5 apples}\n", "2: max_output is no size: write"},
		"signal":                    {"command: [cat]\nstop: {signal: TREM}\n", `2: "TREM" is no signal`},
		"pattern":                   {"command: [cat]\nsteps: {pattern: '('}\n", "2: pattern: error parsing regexp"},
		"steps without pattern":     {"command: [cat]\nsteps: {total: 3}\n", "2: steps has no pattern"},
		"total":                     {"command: [cat]\nsteps: {pattern: x, total: {}}\n", "2: total says not"},
		"total without group":       {"command: [cat]\nsteps: {pattern: x, total: {pattern: y}}\n", "2: the pattern of total has no group"},
		"allow nobody":              {"command: [cat]\nallow: []\n", "2: allow names nobody"},
		"unknown builtin":           {"builtin: nop\n", `1: "nop" is not built in`},
		"builtin with command":      {"builtin: noop\ncommand: [x]\n", "2: command has no meaning beside builtin"},
		"too large":                 {"command: [x]\n#" + strings.Repeat("x", maxFile), "more than"},
		"not a boolean":             {"command: [x]\nparameters_file: perhaps\n", "2: parameters_file must be true or false"},
		"infinite number":           {"command: [x]\nparameters: {type: object, maximum: .inf}\n", "cannot be written as JSON"},
		"a file of a missing param": {"command: [x, {file: o}]" + schema, `no parameter is called "o"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cat, problems := load(t, Config{Env: os.Environ()}, map[string]string{"bad.yaml": c.file, "good.yml": "command: [sh]"})
			found := slices.ContainsFunc(problems, func(p Problem) bool {
				text := p.Error()
				_, text, _ = strings.Cut(text, "bad.yaml:")
				return strings.Contains(text, c.want)
			})
			if !found {
				t.Errorf("%s\nproblems %v, want one with %q", c.file, problems, c.want)
			}
			offered := cat.offered()
			if slices.Contains(offered, "bad") || !slices.Contains(offered, "good") || !slices.Contains(offered, "noop") {
				t.Errorf("offered %v: only the bad file may be missing", offered)
			}
		})
	}
}

func TestFilesReplaceWhatIsBuiltIn(t *testing.T) {
	t.Parallel()
	first, second := roots(t, map[string]string{"noop.yaml": "command: [sh]\ndescription: first", "a.yaml": "command: [sh]"}),
		roots(t, map[string]string{"x.yaml": "name: noop\ncommand: [sh]\ndescription: second", "survey_host.yaml": "comand: [sh]", "b.yml": "name: c\ncommand: [sh]", "c.yaml": "command: [sh]", "readme.txt": "x"})
	c, problems := Load(Config{Dirs: []string{first, "/no/such/directory", second}})
	if len(problems) != 3 { // survey_host: unknown key, nothing to run; c: twice
		t.Errorf("problems %v", problems)
	}
	noop, _ := c.Type("noop")
	if noop.Description != "second" || noop.File != filepath.Join(second, "x.yaml") {
		t.Errorf("noop is %q of %s", noop.Description, noop.File)
	}
	if got, want := c.offered(), []string{"a", "noop"}; !slices.Equal(slices.DeleteFunc(got, func(s string) bool { return !slices.Contains([]string{"a", "c", "noop", "survey_host"}, s) }), want) {
		t.Errorf("offered %v, want %v: a file that is wrong stands in the way of the built in one", got, want)
	}
}

func TestOffers(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"there.yaml":   "command: [sh]\nattempts: 2\ndescription: d\nparameters: {type: object, properties: {x: {minimum: 1.50, enum: [1, a, true, null]}}}",
		"missing.yaml": "command: [no-such-program]",
		"nowhere.yaml": "command: [sh]\ndir: /no/such/directory",
	}
	c, problems := load(t, Config{}, files)
	if len(problems) > 0 {
		t.Errorf("problems %v: what is missing on a host is none", problems)
	}
	offers := c.Offers()
	i := slices.IndexFunc(offers, func(o message.Offer) bool { return o.Name == "there" })
	if i < 0 || offers[i].Attempts != 2 || offers[i].Description != "d" || string(offers[i].Parameters) != `{"properties":{"x":{"enum":[1,"a",true,null],"minimum":1.5}},"type":"object"}` {
		t.Errorf("offers %+v", offers)
	}
	for name, reason := range map[string]string{"missing": "program no-such-program was not found", "nowhere": "/no/such/directory is missing"} {
		typ, ok := c.Type(name)
		if !ok || !strings.Contains(typ.Reason, reason) || slices.ContainsFunc(offers, func(o message.Offer) bool { return o.Name == name }) {
			t.Errorf("%s: %+v, want reason %q and no offer", name, typ, reason)
		}
	}
	same, _ := load(t, Config{}, files)
	files["there.yaml"] += "\nname: other"
	other, _ := load(t, Config{}, files)
	if c.Digest() != same.Digest() || c.Digest() == other.Digest() {
		t.Error("the digest must change with the offers, and only with them")
	}
}

// Every example of the documentation loads, and so does every file among the examples.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/work-types.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) < 5 {
		t.Errorf("%d examples in the documentation", len(blocks))
	}
	for _, b := range blocks {
		if _, problems := parse("example.yaml", b[1]); len(problems) > 0 {
			t.Errorf("%v in\n%s", problems, b[1])
		}
	}
	for _, key := range typeKeys {
		if !bytes.Contains(text, []byte("| `"+key+"` |")) {
			t.Errorf("no row for %s in the table of keys", key)
		}
	}
	files, err := filepath.Glob("../../examples/work.d/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, f := range files {
		if _, problems := read(f); len(problems) > 0 {
			t.Errorf("%v", problems)
		}
	}
}

func FuzzParse(f *testing.F) {
	names, _ := filepath.Glob("builtin/*.yaml")
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("command: [a, {param: x}]\nparameters: {type: object, properties: {x: {}}}\nsteps: {pattern: '(x)', total: {command: [b]}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		typ, problems := parse("x.yaml", data)
		if len(problems) > 0 {
			return
		}
		if !validName.MatchString(typ.Name) || typ.schema == nil || typ.Attempts < 1 || !typ.noop && len(typ.items) == 0 {
			t.Errorf("without problems: %+v", typ)
		}
		c := &Catalogue{types: map[string]*Type{typ.Name: typ}}
		c.missing(typ)
		c.Prepare(request(typ.Name, `{"x":"y"}`), "")
	})
}
