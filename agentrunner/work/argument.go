package work

import (
	"encoding/json"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"chiffon/pkg/fault"
	"chiffon/pkg/schema"
)

// An item of a command stands for no, one or several whole arguments. Nothing is ever put into the middle of one.
type item struct {
	kind   itemKind
	text   string // a literal, or the option or flag before the value; an option that ends in = is glued to it
	param  string
	prefix string // of a file's path
	put    []string
}

type itemKind int

const (
	itemLiteral    itemKind = iota // text
	itemParam                      // {param: p}, {option: --x, param: p}
	itemFlag                       // {flag: --x, param: p}, {flag: --x}: the parameter of the same name
	itemEach                       // {each: p}, {option: --x, each: p}
	itemArgv                       // {argv: p}: program and arguments
	itemFile                       // {file: p}, {option: --x, file: p, prefix: "@"}
	itemParameters                 // {parameters_file: true}, likewise
	itemScript                     // {script: true}: what runs the script, and its path
	itemUnless                     // {unless: p, put: [a, b]}: literals, when the parameter is absent
)

// An argument of a command that is ready to run: text, or the path of a file to be made for the attempt.
type argument struct {
	text   string
	glue   string // before the path
	file   []byte // content; nil means text counts
	script bool
}

func (r *reader) command(t *Type, n *yaml.Node, what string) []item {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.wrong(n, "write command: [program, argument]; no shell reads it", "%s must be a list of arguments", what)
		return nil
	}
	var items []item
	for _, c := range n.Content {
		if i, ok := r.item(t, c, what); ok {
			items = append(items, i)
		}
	}
	return items
}

func (r *reader) item(t *Type, n *yaml.Node, what string) (i item, ok bool) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		if strings.ContainsRune(n.Value, 0) {
			r.wrong(n, "", "an argument contains a NUL character")
		}
		return item{text: n.Value}, true
	}
	if n.Kind != yaml.MappingNode {
		r.wrong(n, "write a text, or one like {param: name}", "an entry of %s is no argument", what)
		return item{}, false
	}
	before := len(r.problems)
	m := r.mapping(n, "an argument", "param", "option", "flag", "each", "argv", "file", "parameters_file", "script", "prefix", "unless", "put")
	i.text, i.prefix = r.text(m, "option"), r.text(m, "prefix")
	scalar := []string{"string", "number", "integer", "boolean"}
	switch {
	case m.has("flag"):
		i.kind, i.text, i.param = itemFlag, r.text(m, "flag"), r.text(m, "param")
		if i.param == "" {
			i.param = strings.ReplaceAll(strings.TrimLeft(i.text, "-"), "-", "_")
		}
		r.parameter(t, n, i.param, "boolean")
	case m.has("param"):
		i.kind, i.param = itemParam, r.text(m, "param")
		r.parameter(t, n, i.param, scalar...)
	case m.has("each"):
		i.kind, i.param = itemEach, r.text(m, "each")
		r.parameter(t, n, i.param, "array")
	case m.has("argv"):
		i.kind, i.param = itemArgv, r.text(m, "argv")
		r.parameter(t, n, i.param, "array")
	case m.has("file"):
		i.kind, i.param = itemFile, r.text(m, "file")
		r.parameter(t, n, i.param)
	case m.has("unless"):
		i.kind, i.param, i.put = itemUnless, r.text(m, "unless"), r.texts(m, "put")
		r.parameter(t, n, i.param)
	case r.boolean(m, "parameters_file"):
		i.kind = itemParameters
	case r.boolean(m, "script"):
		i.kind = itemScript
		if t.script == "" {
			r.wrong(n, "add script: |", "there is no script")
		}
	case len(r.problems) == before:
		r.wrong(n, "write one like {param: name} or {option: --limit, param: name}", "the argument says not where its value comes from")
	}
	if m.has("put") != (i.kind == itemUnless) {
		r.wrong(n, "write {unless: parameter, put: [argument]}", "unless and put belong together")
	}
	if m.has("option") && (i.kind == itemFlag || i.kind == itemArgv || i.kind == itemScript) {
		r.wrong(n, "", "option has no meaning here")
	}
	if m.has("prefix") && i.kind != itemFile && i.kind != itemParameters {
		r.wrong(n, "", "prefix stands only before the path of a file")
	}
	return i, len(r.problems) == before
}

// interpreter is what the first line of the script says. The script is given to it as a file to read: to execute a file
// that was only just written fails whenever another program starts at the wrong moment.
func (t *Type) interpreter() []string {
	first, _, _ := strings.Cut(t.script, "\n")
	return strings.Fields(strings.TrimPrefix(first, "#!"))
}

// arguments makes the argument list of a request. What the parameters make impossible is a fault 5003.
func (t *Type) arguments(items []item, params map[string]json.RawMessage, whole json.RawMessage) ([]argument, *fault.Fault) {
	var list []argument
	operands := false // behind "--" nothing is taken for an option
	for _, i := range items {
		raw, present := params[i.param]
		present = present && string(raw) != "null"
		switch i.kind {
		case itemLiteral:
			list = append(list, argument{text: i.text})
			operands = operands || i.text == "--"
		case itemScript:
			for _, word := range t.interpreter() {
				list = append(list, argument{text: word})
			}
			list = append(list, argument{script: true})
		case itemUnless:
			for _, word := range i.put {
				if !present {
					list = append(list, argument{text: word})
				}
			}
		case itemFlag:
			if string(raw) == "true" {
				list = append(list, argument{text: i.text})
			}
		case itemFile, itemParameters:
			if i.kind == itemParameters {
				raw, present = whole, true
			}
			if present {
				list = i.file(list, raw)
			}
		case itemParam, itemEach, itemArgv:
			if !present {
				continue
			}
			var flt *fault.Fault
			if list, flt = i.values(list, raw, operands); flt != nil {
				return nil, flt
			}
		}
	}
	return list, nil
}

func (i item) file(list []argument, content []byte) []argument {
	glue := i.prefix
	switch {
	case strings.HasSuffix(i.text, "="):
		glue = i.text + i.prefix
	case i.text != "":
		list = append(list, argument{text: i.text})
	}
	return append(list, argument{glue: glue, file: content})
}

func (i item) values(list []argument, raw json.RawMessage, operands bool) ([]argument, *fault.Fault) {
	field := schema.Parameters + "." + i.param
	var values []json.RawMessage // decoded into memory of its own: raw is looked at again
	if i.kind == itemParam {
		values = append(values, raw)
	} else if err := json.Unmarshal(raw, &values); err != nil {
		return nil, fault.Invalid(field, "must be a list")
	}
	glued := strings.HasSuffix(i.text, "=")
	for _, v := range values {
		text, quoted, ok := scalar(v)
		switch {
		case !ok:
			return nil, fault.Invalid(field, "must be a text, a number or true or false to be an argument")
		case strings.ContainsRune(text, 0):
			return nil, fault.Invalid(field, "contains a NUL character, which no argument can hold")
		case (quoted || i.text == "") && strings.HasPrefix(text, "-") && !operands && !glued && i.kind != itemArgv:
			return nil, fault.Invalid(field, "%q begins with -, the program would take it for an option", text)
		case glued:
			text = i.text + text
		case i.text != "":
			list = append(list, argument{text: i.text})
		}
		list = append(list, argument{text: text})
	}
	return list, nil
}

// scalar is a JSON value as the text of an argument; quoted tells that it was a string.
func scalar(raw json.RawMessage) (text string, quoted, ok bool) {
	switch {
	case len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || string(raw) == "null":
		return "", false, false
	case raw[0] == '"':
		return text, true, json.Unmarshal(raw, &text) == nil
	}
	return string(raw), false, true
}

// permitted reports whether one of the patterns allows a command. A pattern of one word is a program with any
// arguments; more words stand for one argument each, the last one as "*" for any that follow.
func permitted(patterns, argv []string) bool {
	if len(argv) == 0 || strings.Contains(argv[0], "/") && path.Clean(argv[0]) != argv[0] {
		return false // a path that wanders is not what its first letters promise
	}
	for _, p := range patterns {
		if allows(strings.Fields(p), argv) {
			return true
		}
	}
	return false
}

func allows(words, argv []string) bool {
	if len(words) == 1 {
		return matches(words[0], argv[0])
	}
	for i, w := range words {
		if i > 0 && i == len(words)-1 && w == "*" {
			return true
		}
		if i >= len(argv) || !matches(w, argv[i]) {
			return false
		}
	}
	return len(words) > 0 && len(words) == len(argv)
}

// matches holds a text against a pattern in which * stands for any letters, or none.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, p := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, p)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
