package work

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"chiffon/pkg/near"
)

// maxFile is how long a file of a work type may be, in bytes.
const maxFile = 1 << 20

// maxNesting is how deep its values may be nested.
const maxNesting = 64

// A reader reads one file and gathers all that is wrong with it.
type reader struct {
	file     string
	problems []Problem
}

func (r *reader) wrong(n *yaml.Node, cure, format string, args ...any) {
	line := 0
	if n != nil {
		line = n.Line
	}
	r.problems = append(r.problems, Problem{File: r.file, Line: line, Message: fmt.Sprintf(format, args...), Cure: cure})
}

// A mapping is what an object of the file holds.
type mapping struct {
	node  *yaml.Node
	value map[string]*yaml.Node
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// document reads the one YAML document of a file; nil when there is none that can be read.
func (r *reader) document(data []byte) *yaml.Node {
	if len(data) > maxFile {
		r.wrong(nil, "", "the file has more than %d bytes", maxFile)
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			r.wrong(nil, "give it at least a command", "the file is empty")
			return nil
		}
		at, text := &yaml.Node{}, err.Error()
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			at.Line, _ = strconv.Atoi(m[1])
			text = text[len(m[0]):]
		}
		r.wrong(at, "", "not YAML: %s", strings.TrimPrefix(text, "yaml: "))
		return nil
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		r.wrong(nil, "put each work type into a file of its own", "the file holds more than one document")
		return nil
	}
	if len(doc.Content) != 1 || !r.plain(doc.Content[0], 1) {
		return nil
	}
	return doc.Content[0]
}

// plain refuses what makes a file mean more than it shows: aliases, merges, and values nested without end.
func (r *reader) plain(n *yaml.Node, depth int) bool {
	if depth > maxNesting {
		r.wrong(n, "", "values are nested more than %d deep", maxNesting)
		return false
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Tag == "!!merge" {
		r.wrong(n, "write the value out", "anchors, aliases and merges are not read here")
		return false
	}
	for _, c := range n.Content {
		if !r.plain(c, depth+1) {
			return false
		}
	}
	return true
}

// mapping reads an object whose keys are all among known.
func (r *reader) mapping(n *yaml.Node, what string, known ...string) mapping {
	m := r.anyMapping(n, what)
	for key, v := range m.value {
		if slices.Contains(known, key) {
			continue
		}
		cure := "known: " + strings.Join(known, ", ")
		if word := nearest(key, known); word != "" {
			cure = "did you mean " + word + "?"
		}
		r.problems = append(r.problems, Problem{File: r.file, Line: m.line(key, v), Message: fmt.Sprintf("unknown key %q in %s", key, what), Cure: cure})
		delete(m.value, key)
	}
	return m
}

// anyMapping reads an object with any keys, each of them once.
func (r *reader) anyMapping(n *yaml.Node, what string) mapping {
	m := mapping{node: n, value: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		r.wrong(n, "", "%s must hold keys and values", what)
		return m
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			r.wrong(k, "", "a key of %s is not a word", what)
			continue
		}
		if _, had := m.value[k.Value]; had {
			r.wrong(k, "keep one of them", "%q stands twice in %s", k.Value, what)
			continue
		}
		m.value[k.Value] = v
	}
	return m
}

// line is where a key stands.
func (m mapping) line(key string, v *yaml.Node) int {
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		if m.node.Content[i].Value == key {
			return m.node.Content[i].Line
		}
	}
	return v.Line
}

func (m mapping) has(key string) bool { return m.value[key] != nil }

// text reads a string; empty when the key is absent or wrong.
func (r *reader) text(m mapping, key string) string {
	n := m.value[key]
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		r.wrong(n, "", "%s must be a text", key)
		return ""
	}
	if strings.ContainsRune(n.Value, 0) {
		r.wrong(n, "", "%s contains a NUL character", key)
		return ""
	}
	return n.Value
}

func (r *reader) boolean(m mapping, key string) bool {
	n := m.value[key]
	if n == nil {
		return false
	}
	var b bool
	if n.ShortTag() != "!!bool" || n.Decode(&b) != nil {
		r.wrong(n, "", "%s must be true or false", key)
	}
	return b
}

// positive reads a whole number from 1 up; fallback when the key is absent or wrong.
func (r *reader) positive(m mapping, key string, fallback int) int {
	n := m.value[key]
	if n == nil {
		return fallback
	}
	var i int
	if n.ShortTag() != "!!int" || n.Decode(&i) != nil || i < 1 || i > math.MaxInt32 {
		r.wrong(n, "", "%s must be a whole number from 1 up", key)
		return fallback
	}
	return i
}

// texts reads a list of strings.
func (r *reader) texts(m mapping, key string) []string {
	n := m.value[key]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.wrong(n, fmt.Sprintf("write %s: [one, two]", key), "%s must be a list", key)
		return nil
	}
	list := make([]string, 0, len(n.Content))
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode || c.ShortTag() == "!!null" {
			r.wrong(c, "", "an entry of %s must be a text", key)
			continue
		}
		list = append(list, c.Value)
	}
	return list
}

func (r *reader) pattern(m mapping, key string) *regexp.Regexp {
	text := r.text(m, key)
	if text == "" {
		return nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		r.wrong(m.value[key], "the syntax is that of Go (RE2)", "%s: %v", key, err)
	}
	return re
}

// bytes reads a size: a number of bytes, or one with KiB, MiB or GiB behind it.
func (r *reader) bytes(m mapping, key string, fallback int64) int64 {
	text := strings.TrimSpace(r.text(m, key))
	if text == "" {
		return fallback
	}
	unit := int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if t, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(t), u
		}
	}
	i, err := strconv.ParseInt(text, 10, 64)
	if err != nil || i < 1 || i > math.MaxInt64/unit {
		r.wrong(m.value[key], "write a number of bytes, or one like 64MiB", "%s is no size", key)
		return fallback
	}
	return i * unit
}

// value turns a node into what encoding/json would have read.
func (r *reader) value(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		object := map[string]any{}
		for key, v := range r.anyMapping(n, "an object").value {
			object[key] = r.value(v)
		}
		return object
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			list = append(list, r.value(c))
		}
		return list
	}
	var v any
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool", "!!int", "!!float":
		if err := n.Decode(&v); err != nil {
			r.wrong(n, "put it into quotes if it is a text", "%q is no value", n.Value)
			return nil
		}
		text, err := json.Marshal(v)
		if err != nil {
			r.wrong(n, "", "%s cannot be written as JSON", n.Value)
			return nil
		}
		if _, ok := v.(bool); ok {
			return v
		}
		return json.Number(text)
	}
	return n.Value
}

// nearest is the known word that differs from word in at most two letters; empty if there is none.
func nearest(word string, known []string) string { return near.Word(word, known, 2) }
