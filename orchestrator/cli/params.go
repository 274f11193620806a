package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// parameters makes the parameters of a task: the JSON object in file ("-" reads in; "" means none), with each "key=value" put in.
func parameters(file string, pairs []string, in io.Reader) (json.RawMessage, error) {
	base := []byte("{}")
	if file != "" {
		var err error
		if base, err = readFile(file, in); err != nil {
			return nil, err
		}
	}
	if len(pairs) == 0 && file != "" {
		// as it is: the server judges numbers and repeated keys better than a round trip would leave them
		if !json.Valid(base) || !bytes.HasPrefix(bytes.TrimSpace(base), []byte("{")) {
			return nil, fmt.Errorf("--params %s: not a JSON object", file)
		}
		if err := sizes(base); err != nil {
			return nil, fmt.Errorf("--params %s: %w", file, err)
		}
		return base, nil
	}
	object := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(base))
	d.UseNumber()
	if err := d.Decode(&object); err != nil || object == nil {
		return nil, fmt.Errorf("--params %s: not a JSON object", file)
	}
	if err := sizes(base); err != nil {
		return nil, fmt.Errorf("--params %s: %w", file, err)
	}
	given := map[string]bool{}
	for _, pair := range pairs {
		if err := set(object, pair, given); err != nil {
			return nil, err
		}
	}
	return json.Marshal(object)
}

// set puts one "a.b=value" into object. given holds the keys that the command line set before, which can't be set again.
func set(object map[string]any, pair string, given map[string]bool) error {
	key, text, ok := strings.Cut(pair, "=")
	path := keyPath(key)
	if !ok || slices.Contains(path, "") {
		return fmt.Errorf("-p %q is not key=value", pair)
	}
	value, err := typed(text)
	if err != nil {
		return fmt.Errorf("-p %s: %w", key, err)
	}
	if given[key] {
		return fmt.Errorf("-p %s is given twice", key)
	}
	given[key] = true
	for i, name := range path[:len(path)-1] {
		below, ok := object[name].(map[string]any)
		if _, there := object[name]; there && !ok {
			return fmt.Errorf("-p %s: %s is already something else than an object", key, strings.Join(path[:i+1], "."))
		}
		if !ok {
			below = map[string]any{}
			object[name] = below
		}
		object = below
	}
	last := path[len(path)-1]
	if _, ok := object[last].(map[string]any); ok && given[key] {
		if slices.ContainsFunc(slices.Collect(maps.Keys(given)), func(k string) bool { return strings.HasPrefix(k, key+".") }) {
			return fmt.Errorf("-p %s: keys inside it are given as well", key)
		}
	}
	object[last] = value
	return nil
}

// keyPath splits a key at its dots; "\." is a dot inside a name.
func keyPath(key string) []string {
	path := strings.Split(strings.ReplaceAll(key, `\.`, "\x00"), ".")
	for i := range path {
		path[i] = strings.ReplaceAll(path[i], "\x00", ".")
	}
	return path
}

// typed reads a value as JSON when it looks like it: numbers, true, false, null, and what begins with { [ or ". All else is a string.
func typed(text string) (any, error) {
	if text == "" {
		return "", nil
	}
	var value any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err := d.Decode(&value)
	if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("something follows the value")
	}
	if strings.ContainsRune(`{["`, rune(text[0])) {
		if err != nil {
			return nil, fmt.Errorf("%s begins like JSON but is none: %w (a string that begins so wants to be quoted as JSON)", text, err)
		}
		return value, sizes([]byte(text))
	}
	if err != nil || text != strings.TrimSpace(text) {
		return text, nil
	}
	return value, sizes([]byte(text))
}

// sizes refuses JSON with a number in it that no float can hold: nobody could read it.
func sizes(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	for {
		t, err := d.Token()
		if err != nil {
			return nil // the end, or no JSON: others say so
		}
		if n, ok := t.(json.Number); ok {
			if _, err := n.Float64(); err != nil {
				return fmt.Errorf("the number %s is too large", cut(n.String(), 40))
			}
		}
	}
}

// readFile reads a named file, or in for "-".
func readFile(name string, in io.Reader) ([]byte, error) {
	if name == "-" {
		data, err := io.ReadAll(in)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return data, nil
	}
	return os.ReadFile(name)
}

// wordPairs reads "k=v" flags into a map.
func wordPairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, pair := range list {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("--%s %q is not key=value", flag, pair)
		}
		if was, ok := m[k]; ok && was != v {
			return nil, fmt.Errorf("--%s %s is given twice", flag, k)
		}
		m[k] = v
	}
	return m, nil
}
