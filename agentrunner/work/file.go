package work

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"chiffon/agentrunner/child"
	"chiffon/pkg/message"
	"chiffon/pkg/schema"
)

// Defaults of a work type.
const (
	DefaultAttempts  = 4
	DefaultMaxOutput = 1 << 30
)

// A Type is one work type as a file says it is done.
type Type struct {
	Name        string
	Description string
	File        string // where it is written; "built in" for those that come with the runner
	Attempts    int    // executions allowed; 1 is work that must not be repeated
	Concurrency int    // how many may run at once; 0 means as many as the runner has slots
	MaxDuration time.Duration
	Parameters  json.RawMessage // JSON Schema
	Reason      string          // why it is not offered; empty when it is

	schema     *schema.Schema
	properties map[string]property
	items      []item
	script     string
	programs   []string // patterns of what may run when a parameter names the program
	stdin      stdin
	paramsFile bool
	passEnv    []string
	setEnv     []string
	root       string
	inRoot     []string
	dir        string
	steps      *stepRule
	maxMemory  int64 // bytes
	maxOutput  int64 // bytes
	signal     syscall.Signal
	grace      time.Duration
	allow      []string
	noop       bool
}

// A property is what the schema says of one parameter.
type property struct {
	Type    any             `json:"type"`
	Default json.RawMessage `json:"default"`
}

// stdin says what the program reads: nothing, all parameters as JSON, or one of them.
type stdin struct {
	parameters bool
	param      string
}

const builtinFile = "built in"

var (
	validName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	validEnv  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	scriptTop = regexp.MustCompile(`^#!\s*/`)
)

var typeKeys = []string{
	"name", "description", "parameters", "command", "script", "programs", "stdin", "parameters_file", "env", "root",
	"in_root", "dir", "steps", "limits", "stop", "attempts", "concurrency", "allow", "builtin",
}

// parse reads the file of one work type. The type has its name also when there are problems, as far as it can be told.
func parse(file string, data []byte) (*Type, []Problem) {
	r := &reader{file: file}
	t := r.workType(data)
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.Line - b.Line })
	return t, r.problems
}

func (r *reader) workType(data []byte) *Type {
	base := filepath.Base(r.file)
	t := &Type{Name: strings.TrimSuffix(base, filepath.Ext(base)), File: r.file}
	doc := r.document(data)
	if doc == nil {
		return t
	}
	m := r.mapping(doc, "the work type", typeKeys...)
	if m.has("name") {
		t.Name = r.text(m, "name")
	}
	if !validName.MatchString(t.Name) {
		at := m.value["name"]
		r.wrong(at, "1 to 63 of a-z 0-9 _ -, beginning with a letter", "%q is no name of a work type", t.Name)
	}
	t.Description = r.text(m, "description")
	if len(t.Description) > message.MaxDescription {
		r.wrong(m.value["description"], "shorten it", "description has %d bytes, more than the %d that an agent may tell", len(t.Description), message.MaxDescription)
	}
	t.Attempts = r.positive(m, "attempts", DefaultAttempts)
	if t.Attempts > message.MaxAttempts {
		r.wrong(m.value["attempts"], "", "attempts is %d, more than %d", t.Attempts, message.MaxAttempts)
	}
	t.Concurrency = r.positive(m, "concurrency", 0)
	t.allow = r.texts(m, "allow")
	if m.has("allow") && len(t.allow) == 0 {
		r.wrong(m.value["allow"], "name the submitters, or leave allow out", "allow names nobody")
	}
	r.parameters(t, m)
	r.limits(t, m)
	r.stop(t, m)
	if m.has("builtin") {
		r.inside(t, m)
		return t
	}
	r.program(t, m, doc)
	r.input(t, m)
	r.environment(t, m)
	r.places(t, m)
	r.steps(t, m)
	return t
}

// inside reads a work type that the runner does itself.
func (r *reader) inside(t *Type, m mapping) {
	if word := r.text(m, "builtin"); word != "noop" {
		r.wrong(m.value["builtin"], "the only one is noop", "%q is not built in", word)
	}
	t.noop = true
	for _, key := range []string{"command", "script", "programs", "stdin", "parameters_file", "env", "root", "in_root", "dir", "steps", "stop"} {
		if m.has(key) {
			r.wrong(m.value[key], "leave one of them out", "%s has no meaning beside builtin: no program runs", key)
		}
	}
}

func (r *reader) parameters(t *Type, m mapping) {
	n := m.value["parameters"]
	if n == nil {
		t.Parameters = json.RawMessage(`{"additionalProperties":false,"type":"object"}`)
	} else {
		object, ok := r.value(n).(map[string]any)
		if !ok || object["type"] != "object" {
			r.wrong(n, "begin it with type: object", "parameters is no JSON Schema of an object")
			return
		}
		text, err := json.Marshal(object)
		if err != nil {
			r.wrong(n, "", "parameters: %v", err)
			return
		}
		if len(text) > message.MaxSchema {
			r.wrong(n, "shorten it", "parameters has %d bytes as JSON, more than the %d that an agent may tell", len(text), message.MaxSchema)
			return
		}
		t.Parameters = text
	}
	var err error
	if t.schema, err = schema.Compile(t.Parameters); err != nil {
		r.wrong(n, "see https://json-schema.org/understanding-json-schema", "%v", err)
		return
	}
	var known struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	json.Unmarshal(t.Parameters, &known) // compiled, so it is an object
	t.properties = map[string]property{}
	for name, text := range known.Properties {
		var p property
		json.Unmarshal(text, &p) // true and false are schemas too, and say nothing
		t.properties[name] = p
	}
}

// parameter checks that a parameter which the file uses is one that the schema knows, of a type it can be used as.
func (r *reader) parameter(t *Type, n *yaml.Node, name string, types ...string) {
	p, ok := t.properties[name]
	if !ok {
		known := make([]string, 0, len(t.properties))
		for k := range t.properties {
			known = append(known, k)
		}
		cure := "add it under parameters: properties:"
		if word := nearest(name, known); word != "" {
			cure = "did you mean " + word + "?"
		}
		r.wrong(n, cure, "no parameter is called %q", name)
		return
	}
	if word, ok := p.Type.(string); ok && len(types) > 0 && !slices.Contains(types, word) {
		r.wrong(n, "", "parameter %s is of type %s, here it must be %s", name, word, strings.Join(types, " or "))
	}
}

func (r *reader) limits(t *Type, m mapping) {
	t.maxOutput = DefaultMaxOutput
	n := m.value["limits"]
	if n == nil {
		return
	}
	l := r.mapping(n, "limits", "max_duration_seconds", "max_memory_mb", "max_output")
	t.MaxDuration = time.Duration(r.positive(l, "max_duration_seconds", 0)) * time.Second
	t.maxMemory = int64(r.positive(l, "max_memory_mb", 0)) << 20
	t.maxOutput = r.bytes(l, "max_output", DefaultMaxOutput)
}

func (r *reader) stop(t *Type, m mapping) {
	t.signal, t.grace = syscall.SIGTERM, child.DefaultGrace
	n := m.value["stop"]
	if n == nil {
		return
	}
	s := r.mapping(n, "stop", "signal", "grace_seconds")
	if s.has("signal") {
		t.signal = signalOf(r.text(s, "signal"))
		if t.signal == 0 {
			r.wrong(s.value["signal"], "write one like SIGINT", "%q is no signal", r.text(s, "signal"))
		}
	}
	t.grace = time.Duration(r.positive(s, "grace_seconds", int(child.DefaultGrace/time.Second))) * time.Second
}

// signalOf reads a signal's name, with or without its SIG; 0 means that there is none.
func signalOf(name string) syscall.Signal {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return unix.SignalNum(name)
}

func (r *reader) program(t *Type, m mapping, doc *yaml.Node) {
	t.script = r.text(m, "script")
	if t.script != "" && !scriptTop.MatchString(t.script) {
		r.wrong(m.value["script"], "begin it with #!/bin/sh", "script does not say what runs it")
	}
	t.programs = r.texts(m, "programs")
	n := m.value["command"]
	switch {
	case n == nil && t.script != "":
		t.items = []item{{kind: itemScript}}
	case n == nil:
		r.wrong(&yaml.Node{Line: doc.Line}, "add command: [program, argument]", "there is nothing to run")
	default:
		t.items = r.command(t, n, "command")
	}
	if len(t.items) == 0 {
		return
	}
	if first := t.items[0]; n != nil && first.kind != itemLiteral && first.kind != itemArgv && first.kind != itemScript {
		r.wrong(n.Content[0], "begin the command with the program", "a parameter cannot be the program")
	}
	named := slices.ContainsFunc(t.items, func(i item) bool { return i.kind == itemArgv })
	if named && t.programs == nil {
		r.wrong(n, `add programs: ["systemctl status *", uptime], or ["*"] for any`, "a parameter names the program, and nothing says which are allowed")
	}
	if !named && t.programs != nil {
		r.wrong(m.value["programs"], "", "programs has no meaning without {argv: parameter}")
	}
}

func (r *reader) input(t *Type, m mapping) {
	t.paramsFile = r.boolean(m, "parameters_file")
	n := m.value["stdin"]
	switch {
	case n == nil:
	case n.Kind == yaml.MappingNode:
		s := r.mapping(n, "stdin", "param")
		t.stdin.param = r.text(s, "param")
		r.parameter(t, n, t.stdin.param)
	case n.Value == "parameters":
		t.stdin.parameters = true
	case n.Value != "none":
		r.wrong(n, "write none, parameters or {param: name}", "stdin is wrong")
	}
}

func (r *reader) environment(t *Type, m mapping) {
	n := m.value["env"]
	if n == nil {
		return
	}
	e := r.mapping(n, "env", "pass", "set")
	for _, name := range r.texts(e, "pass") {
		if strings.HasPrefix(name, "AGENTRUNNER_") || strings.HasPrefix(name, "ORCHESTRATOR_") || !validEnv.MatchString(name) {
			r.wrong(e.value["pass"], "pass only what the program needs", "%s cannot be passed on", name)
			continue
		}
		t.passEnv = append(t.passEnv, name)
	}
	if !e.has("set") {
		return
	}
	set := r.anyMapping(e.value["set"], "set")
	for name, v := range set.value {
		if v.Kind != yaml.ScalarNode || strings.ContainsRune(v.Value, 0) || !validEnv.MatchString(name) {
			r.wrong(v, "", "%s must be a name with a text", name)
			continue
		}
		t.setEnv = append(t.setEnv, name+"="+v.Value)
	}
	slices.Sort(t.setEnv)
}

func (r *reader) places(t *Type, m mapping) {
	t.root, t.dir = r.directory(m, "root"), r.directory(m, "dir")
	t.inRoot = r.texts(m, "in_root")
	for i, name := range t.inRoot {
		r.parameter(t, m.value["in_root"].Content[min(i, len(m.value["in_root"].Content)-1)], name, "string")
	}
	if len(t.inRoot) > 0 && !m.has("root") {
		r.wrong(m.value["in_root"], "add root: /some/directory", "in_root has no root to look in")
	}
}

func (r *reader) directory(m mapping, key string) string {
	path := r.text(m, key)
	if path != "" && !filepath.IsAbs(path) {
		r.wrong(m.value[key], fmt.Sprintf("write %s: /some/directory", key), "%s is no absolute path", key)
	}
	return path
}
