package message

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"chiffon/pkg/fault"
)

// A broken agent says so; what is too long or unknown is refused by the field, read and written.
func TestHeartbeatState(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state, detail string
		field         string // that is wrong
	}{
		"broken":          {state: StateBroken, detail: "the spool can't be written: disk full"},
		"ready":           {state: StateReady},
		"stopped":         {state: StateStopped},
		"longest detail":  {state: StateBroken, detail: strings.Repeat("d", MaxDetail)},
		"too long detail": {state: StateBroken, detail: strings.Repeat("d", MaxDetail+1), field: "detail"},
		"unknown state":   {state: "asleep", field: "state"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fields := map[string]any{
				"agent_id": "nas", "agent_type": "infra", "protocol_versions": []string{"1.0"}, "state": c.state, "detail": c.detail,
			}
			data, _ := json.Marshal(fields)
			h, err := DecodeHeartbeat(data)
			if got := faultField(err); got != c.field {
				t.Fatalf("read: field %q is wrong (%v), want %q", got, err, c.field)
			}
			if c.field == "" && (h.State != c.state || h.Detail != c.detail) {
				t.Errorf("read %q %q", h.State, h.Detail)
			}
			_, err = json.Marshal(Heartbeat{
				AgentID: "nas", AgentType: "infra", ProtocolVersions: []string{"1.0"}, State: c.state, Detail: c.detail,
			})
			if got := faultField(err); got != c.field {
				t.Errorf("written: field %q is wrong (%v), want %q", got, err, c.field)
			}
		})
	}
}

// Every limit is held at its edge: as much as allowed passes, and one more is refused by the field.
func TestHeartbeatLimits(t *testing.T) {
	t.Parallel()
	labels := func(n int) any {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("k", i)] = "v"
		}
		return m
	}
	words := func(n int) any { return slices.Repeat([]string{"1.0"}, n) }
	text := func(n int) any { return strings.Repeat("w", n) }
	running := func(n int) any {
		held := map[string]any{"task_id": "0a8d1f6e-52c7-8e1b-9b1e-3f2a6c5d4e7f", "attempt": 1}
		return slices.Repeat([]any{held}, n)
	}
	offer := func(field string, value any) any {
		o := map[string]any{"name": "w", "attempts": 1}
		o[field] = value
		return []any{o}
	}
	offers := func(n int) any { return slices.Repeat([]any{map[string]any{"name": "w", "attempts": 1}}, n) }
	schema := func(n int) any { return offer("parameters", json.RawMessage(`"`+strings.Repeat("s", n-2)+`"`)) }
	for name, c := range map[string]struct {
		field string // that is set
		good  any
		bad   any
		wrong string // the path in the fault; empty means field
	}{
		"labels":             {field: "labels", good: labels(64), bad: labels(65)},
		"label key":          {field: "labels", good: map[string]any{"k": ""}, bad: map[string]any{"": "v"}},
		"label key with =":   {field: "labels", good: map[string]any{"k": "a=b"}, bad: map[string]any{"a=b": "v"}},
		"label value":        {field: "labels", good: map[string]any{"k": text(255)}, bad: map[string]any{"k": text(256)}},
		"label control":      {field: "labels", good: map[string]any{"k": "ä b"}, bad: map[string]any{"k": "a\x1b[2J"}},
		"capabilities":       {field: "capabilities", good: words(64), bad: words(65)},
		"long capability":    {field: "capabilities", good: []any{text(255)}, bad: []any{"a", text(256)}, wrong: "capabilities[1]"},
		"empty capability":   {field: "capabilities", good: []any{}, bad: []any{""}, wrong: "capabilities[0]"},
		"capability control": {field: "capabilities", good: []any{"a b"}, bad: []any{"a\u0085b"}, wrong: "capabilities[0]"},
		"protocol versions":  {field: "protocol_versions", good: words(64), bad: words(65)},
		"slots":              {field: "slots", good: 1024, bad: 1025},
		"no slots":           {field: "slots", good: 0, bad: -1},
		"running":            {field: "running", good: running(1024), bad: running(1025)},
		"work types":         {field: "work_types", good: offers(256), bad: offers(257)},
		"name":               {field: "work_types", good: offer("name", text(63)), bad: offer("name", text(64)), wrong: "work_types[0].name"},
		"odd name":           {field: "work_types", good: offer("name", "a_b-1"), bad: offer("name", "a\tb"), wrong: "work_types[0].name"},
		"description":        {field: "work_types", good: offer("description", text(4000)), bad: offer("description", text(4001)), wrong: "work_types[0].description"},
		"attempts":           {field: "work_types", good: offer("attempts", 1000), bad: offer("attempts", 1001), wrong: "work_types[0].attempts"},
		"no attempts":        {field: "work_types", good: offer("attempts", 1), bad: offer("attempts", 0), wrong: "work_types[0].attempts"},
		"schema":             {field: "work_types", good: schema(64 << 10), bad: schema(64<<10 + 1), wrong: "work_types[0].parameters"},
		"version":            {field: "version", good: text(255), bad: text(256)},
		"host":               {field: "host", good: text(255), bad: "nas\n"},
		"instance":           {field: "instance", good: text(255), bad: text(256)},
		"work digest":        {field: "work_digest", good: text(255), bad: text(256)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for value, want := range map[*any]string{&c.good: "", &c.bad: cmp.Or(c.wrong, c.field)} {
				fields := map[string]any{"agent_id": "nas", "agent_type": "infra", "protocol_versions": []string{"1.0"}}
				fields[c.field] = *value
				data, err := json.Marshal(fields)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := DecodeHeartbeat(data); faultField(err) != want {
					t.Errorf("%.100s: field %q is wrong (%v), want %q", data, faultField(err), err, want)
				}
			}
		})
	}
}

// faultField is the field that a fault 5003 names; "none" for another error, empty without one.
func faultField(err error) string {
	if err == nil {
		return ""
	}
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.Code == fault.InvalidMessage {
		return f.Field()
	}
	return "none"
}
