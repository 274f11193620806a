package message

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var jsonBlocks = regexp.MustCompile("(?s)```json\n(.*?)```")

func TestDocumentExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := jsonBlocks.FindAllSubmatch(text, -1)
	if len(blocks) < 8 {
		t.Errorf("docs/protocol.md has %d JSON examples, want one for each form at least", len(blocks))
	}
	for _, block := range blocks {
		var back []byte
		var err error
		switch data := block[1]; {
		case bytes.Contains(data, []byte(`"message_id"`)):
			var m Any
			if m, err = Read(data); err == nil {
				back, err = m.Encode()
			}
		case bytes.Contains(data, []byte(`"protocol_versions"`)):
			var h Heartbeat
			if h, err = DecodeHeartbeat(data); err == nil {
				back, err = json.Marshal(h)
			}
		default:
			var r HeartbeatReply
			if r, err = DecodeHeartbeatReply(data); err == nil {
				back, err = json.Marshal(r)
			}
		}
		if err != nil {
			t.Errorf("%v in %s", err, block[1])
			continue
		}
		sameJSON(t, back, block[1])
	}
}

// The tables of fields in docs/protocol.md say what the code does: each field, and whether it is required.
func TestDocumentTables(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	requiredRow := regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| [^|]* \\| (yes|no) \\|")
	keyRow := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| [^|]* \\|$")
	for _, c := range []struct {
		heading string
		row     *regexp.Regexp
		types   []any
	}{
		{"## Envelope\n", requiredRow, []any{wire{}}},
		{"## work_request\n", requiredRow, []any{WorkRequest{}}},
		{"## work_status\n", requiredRow, []any{WorkStatus{}}},
		{"## work_result\n", requiredRow, []any{WorkResult{}}},
		{"## error\n", requiredRow, []any{Failure{}}},
		{"## Heartbeat\n", requiredRow, []any{Heartbeat{}, HeartbeatReply{}}},
		{"## Our own fields\n", keyRow, []any{Custom{}, Extension{}}},
	} {
		_, section, ok := strings.Cut(string(text), c.heading)
		if !ok {
			t.Errorf("no section %q", c.heading)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var got, want []string
		for _, row := range c.row.FindAllStringSubmatch(section, -1) {
			got = append(got, strings.Join(row[1:], " "))
		}
		for _, v := range c.types {
			want = append(want, fieldsOf(reflect.TypeOf(v), "", c.row == requiredRow)...)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s has\n%s\nwant\n%s", c.heading, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// fieldsOf lists fields as the tables do: those of a payload's objects behind their own, required or not.
func fieldsOf(t reflect.Type, above string, required bool) (all []string) {
	for _, f := range newPlan(t).fields {
		row := above + f.name
		if required {
			word := " no"
			if f.need || f.name == "protocol_version" && t == reflect.TypeFor[wire]() {
				word = " yes"
			}
			row += word
		}
		all = append(all, row)
		switch inner := t.Field(f.index).Type; inner {
		case reflect.TypeFor[*Hints](), reflect.TypeFor[*Step](), reflect.TypeFor[*ResourcesUsed]():
			all = append(all, fieldsOf(inner.Elem(), above+f.name+".", required)...)
		}
	}
	return all
}
