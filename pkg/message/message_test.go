package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

const anID = "6f1c2b9a-0d3e-4f5a-8b7c-9d0e1f2a3b4c"

// specification returns one of the specification's own examples.
func specification(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "specification", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(data, []byte(`"..."`), []byte(`"`+anID+`"`))
}

// edited is the specification's envelope with fields set by path ("payload.step.number"); nil takes a field away.
func edited(t testing.TB, example string, edits map[string]any) []byte {
	t.Helper()
	var whole, part map[string]any
	unmarshal(t, specification(t, "envelope"), &whole)
	unmarshal(t, specification(t, example), &part)
	if hints, ok := part["hints"]; ok {
		whole["payload"].(map[string]any)["hints"] = hints
	} else {
		whole["type"], whole["payload"] = part["type"], part["payload"]
	}
	for path, value := range edits {
		at, name := whole, path
		for up, below, ok := strings.Cut(name, "."); ok; up, below, ok = strings.Cut(name, ".") {
			at, name = at[up].(map[string]any), below
		}
		if value == nil {
			delete(at, name)
		} else {
			at[name] = value
		}
	}
	data, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func unmarshal(t testing.TB, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

func sameJSON(t testing.TB, got, want []byte) {
	t.Helper()
	var g, w any
	unmarshal(t, got, &g)
	unmarshal(t, want, &w)
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func examples(t testing.TB) map[string][]byte {
	all := map[string][]byte{"envelope": specification(t, "envelope")}
	for _, name := range []string{
		"work_request", "work_status", "work_result_success", "work_result_failed", "error", "hints", "chunk_1", "chunk_2",
	} {
		all[name] = edited(t, name, nil)
	}
	return all
}

func TestSpecificationExamples(t *testing.T) {
	t.Parallel()
	for name, data := range examples(t) {
		t.Run(name, func(t *testing.T) {
			m, err := Read(data)
			if err != nil {
				t.Fatalf("Read(%s) = %v", data, err)
			}
			back, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, back, data)
		})
	}
	bare := specification(t, "work_request")
	if _, err := Read(bare); fieldOf(err) != "5003 message_id" {
		t.Errorf("Read(bare type and payload) = %v, want 5003 message_id", err)
	}
}

// fieldOf gives the code and the field of a fault.
func fieldOf(err error) string {
	if err == nil {
		return ""
	}
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok {
		return "no fault: " + err.Error()
	}
	return strings.TrimSpace(strings.Fields(f.Error())[0] + " " + f.Field())
}

func TestOtherVersionSaysWhatIsSpoken(t *testing.T) {
	t.Parallel()
	_, err := Read([]byte(`{"protocol\u005fversion":"2.0","payload":{"work_type":"weave"},"type":7}`))
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok || f.Code != fault.UnsupportedWorkType {
		t.Fatalf("Read(version 2.0) = %v, want 5006", err)
	}
	want := map[string]any{
		"work_type_requested": "weave", "supported_types": []string{}, "supported_versions": []string{"1.0"},
	}
	if !reflect.DeepEqual(f.Context, want) {
		t.Errorf("context = %v, want %v", f.Context, want)
	}
}

func TestDecodeWantsItsKind(t *testing.T) {
	t.Parallel()
	if _, err := Decode[WorkResult](specification(t, "envelope")); fieldOf(err) != "5003 type" {
		t.Errorf("Decode[WorkResult](work_request) = %v, want 5003 type", err)
	}
}

func TestNewGoesThrough(t *testing.T) {
	t.Parallel()
	expires := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	m := New(subject.Orchestrator, "infra", NewUUID(), NewUUID(), WorkRequest{
		TaskID: subject.TaskID(NewUUID()), WorkType: "survey_host", Parameters: json.RawMessage(`{"a":[1,2]}`),
		Hints: &Hints{MaxMemoryMB: 512},
	})
	m.Timestamp = At(expires)
	m.Custom.Chiffon = &Extension{
		Name: "morning survey", Labels: map[string]string{"site": "attic"}, Expires: &expires,
		Hold: &Hold{Reason: "placement", Until: &expires}, Needs: []string{"gpu"},
	}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode[WorkRequest](data)
	if err != nil {
		t.Fatalf("Decode(%s) = %v", data, err)
	}
	back.Timestamp.text = "" // as it was sent
	if !reflect.DeepEqual(back, m) {
		t.Errorf("Decode(%s) = %+v, want %+v", data, back, m)
	}
}

func TestEncodeJudges(t *testing.T) {
	t.Parallel()
	good := func() Message[WorkResult] {
		return New("infra", subject.Orchestrator, NewUUID(), NewUUID(),
			WorkResult{TaskID: subject.TaskID(NewUUID()), Status: ResultSuccess})
	}
	for name, c := range map[string]struct {
		spoil func(*Message[WorkResult])
		want  string
	}{
		"nothing":           {func(*Message[WorkResult]) {}, ""},
		"task id":           {func(m *Message[WorkResult]) { m.Payload.TaskID = "" }, "5003 payload.task_id"},
		"exit code":         {func(m *Message[WorkResult]) { m.Payload.ExitCode = 3 }, "5003 payload.exit_code"},
		"trace id":          {func(m *Message[WorkResult]) { m.TraceID = "" }, "5003 trace_id"},
		"trace id all zero": {func(m *Message[WorkResult]) { m.TraceID = nilUUID }, "5003 trace_id"},
		"sender":            {func(m *Message[WorkResult]) { m.FromAgent = "" }, "5003 from_agent"},
		"time":              {func(m *Message[WorkResult]) { m.Timestamp = Timestamp{} }, "5003 timestamp"},
		"year":              {func(m *Message[WorkResult]) { m.Timestamp = At(time.Unix(1<<40, 0)) }, "5003 timestamp"},
		"version":           {func(m *Message[WorkResult]) { m.ProtocolVersion = "" }, "5003 protocol_version"},
		"other version":     {func(m *Message[WorkResult]) { m.ProtocolVersion = "2.0" }, "5006"},
		"agent id":          {func(m *Message[WorkResult]) { m.Custom.AgentID = "Held" }, "5003 x_custom_fields.agent_id"},
		"resources": {func(m *Message[WorkResult]) { m.Payload.ResourcesUsed = &ResourcesUsed{CPUTimeMS: -1} },
			"5003 payload.resources_used.cpu_time_ms"},
	} {
		t.Run(name, func(t *testing.T) {
			m := good()
			c.spoil(&m)
			data, err := m.Encode()
			if got := fieldOf(err); got != c.want {
				t.Errorf("Encode() = %s, %v, want %q", data, err, c.want)
			}
		})
	}
	deep := New(subject.Orchestrator, "infra", NewUUID(), NewUUID(), WorkRequest{
		TaskID: subject.TaskID(NewUUID()), WorkType: "w", Parameters: json.RawMessage(`{"a":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}`),
	})
	if _, err := deep.Encode(); fieldOf(err) != "5003" {
		t.Errorf("Encode() with 65 levels = %v, want 5003", err)
	}
	for _, parameters := range []string{"", "{", `{}{}`, `{},"work_type":"x"`, `{"a":1,"a":2}`, `[1]`, `{"a":` + strings.Repeat("[", 99)} {
		m := New(subject.Orchestrator, "infra", NewUUID(), NewUUID(), WorkRequest{
			TaskID: subject.TaskID(NewUUID()), WorkType: "w", Parameters: json.RawMessage(parameters),
		})
		if data, err := m.Encode(); !strings.HasPrefix(fieldOf(err), "5003 payload.parameters") {
			t.Errorf("Encode() with parameters %.40s = %s, %v, want 5003 payload.parameters", parameters, data, err)
		}
	}
}

func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	data := edited(t, "work_status", map[string]any{
		"mood": "calm", "payload.Status": "other case", "payload.step.colour": map[string]any{"r": 1.50},
		"x_custom_fields": map[string]any{"log": []any{1, nil}, "output_bytes": 0, "chiffon": map[string]any{
			"silent": false, "more": 1, "hold": map[string]any{"x": "y"}, "cancel": map[string]any{}, "on": map[string]any{},
		}},
	})
	m, err := Decode[WorkStatus](data)
	if err != nil {
		t.Fatal(err)
	}
	m.Custom.AgentID = "attic-1" // a change elsewhere does not disturb them
	back, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, bytes.Replace(back, []byte(`"agent_id":"attic-1",`), nil, 1), data)
}

func TestBytesAreBounded(t *testing.T) {
	t.Parallel()
	full := string(specification(t, "envelope"))
	nested := func(n int) string {
		return strings.Replace(full, `"playbook":`, `"deep":`+strings.Repeat("[", n)+strings.Repeat("]", n)+`,"playbook":`, 1)
	}
	for name, c := range map[string]struct{ data, want string }{
		"nothing":                {"", "5003"},
		"white space":            {" \n", "5003"},
		"no object":              {"[]", "5003"},
		"two values":             {full + full, "5003"},
		"half":                   {full[:200], "5003"},
		"key twice":              {strings.Replace(full, `"playbook":`, `"playbook":1,"playbook":`, 1), "5003 payload.parameters.playbook"},
		"key twice, escaped":     {strings.Replace(full, `"type":`, `"t\u0079pe":"work_request","type":`, 1), "5003 type"},
		"invalid UTF-8":          {strings.Replace(full, "deploy", "d\xffploy", 1), "5003"},
		"half a surrogate":       {strings.Replace(full, "deploy", `d\ud800ploy`, 1), "5003"},
		"a pair":                 {strings.Replace(full, "deploy", `d\ud83d\ude00ploy`, 1), ""},
		"control character":      {strings.Replace(full, "deploy", "d\nploy", 1), "5003"},
		"61 lists below 3":       {nested(61), ""},
		"62 lists below 3":       {nested(62), "5003"},
		"many lists":             {nested(100_000), "5003"},
		"4 MiB of space":         {full + strings.Repeat(" ", MaxSize-len(full)), ""},
		"more":                   {full + strings.Repeat(" ", MaxSize), "5003"},
		"number with zero ahead": {strings.Replace(full, "300", "0300", 1), "5003"},
		"number with plus":       {strings.Replace(full, "300", "+300", 1), "5003"},
		"comma behind":           {strings.Replace(full, "512", "512,", 1), "5003"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(c.data))
			if got := fieldOf(err); got != c.want {
				t.Errorf("Read(%.300s) = %v, want %q", c.data, err, c.want)
			}
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, text, encoding string }{
		"empty":              {"", "", ""},
		"text":               {"größer\n", "größer\n", ""},
		"no UTF-8":           {"\xff\x00", "/wA=", "base64"},
		"larger when quoted": {strings.Repeat("\x01", 6), "AQEBAQEB", "base64"},
		"colours":            {strings.Repeat("a long red word \x1b[0m", 9), strings.Repeat("a long red word \x1b[0m", 9), ""},
	} {
		text, encoding := Text([]byte(c.in))
		back, err := Step{Output: text, OutputEncoding: encoding}.Bytes()
		if text != c.text || encoding != c.encoding || err != nil || string(back) != c.in {
			t.Errorf("%s: Text(%q) = %q, %q, back %q, %v", name, c.in, text, encoding, back, err)
		}
	}
}

func TestNegotiateVersion(t *testing.T) {
	t.Parallel()
	if v, err := NegotiateVersion([]string{"2.0", "1.0"}); v != "1.0" || err != nil {
		t.Errorf("NegotiateVersion(2.0, 1.0) = %q, %v, want 1.0", v, err)
	}
	for _, offered := range [][]string{nil, {"2.0"}, {"1"}} {
		_, err := NegotiateVersion(offered)
		f, ok := errors.AsType[*fault.Fault](err)
		if !ok || f.Code != fault.UnsupportedWorkType || !reflect.DeepEqual(f.Context["supported_versions"], []string{"1.0"}) {
			t.Errorf("NegotiateVersion(%q) = %v, want 5006 with supported_versions", offered, err)
		}
	}
}

func TestHeartbeatFaults(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"agent_id":"a","agent_type":"infra","protocol_versions":["1.0"],"new":1}`:                                "",
		`{"agent_type":"infra","protocol_versions":["1.0"]}`:                                                       "5003 agent_id",
		`{"agent_id":"a","agent_type":"orchestrator","protocol_versions":["1.0"]}`:                                 "5003 agent_type",
		`{"agent_id":"a","agent_type":"infra"}`:                                                                    "5003 protocol_versions",
		`{"agent_id":"a","agent_type":"infra","protocol_versions":["1.0"],"slots":-1}`:                             "5003 slots",
		`{"agent_id":"a","agent_type":"infra","protocol_versions":["1.0"],"boot":-1}`:                              "5003 boot",
		`{"agent_id":"a","agent_type":"infra","protocol_versions":["1.0"],"state":"x"}`:                            "5003 state",
		`{"agent_id":"a","agent_type":"infra","protocol_versions":["1.0"],"running":[{"task_id":"` + anID + `"}]}`: "5003 running[0].attempt",
		`{"agent_id":"a","agent_type":"infra","protocol_versions":["1.0"],"resources":{"cpu_percent":"9"}}`:        "5003 resources.cpu_percent",
		`7`: "5003",
	} {
		if _, err := DecodeHeartbeat([]byte(data)); fieldOf(err) != want {
			t.Errorf("DecodeHeartbeat(%s) = %v, want %q", data, err, want)
		}
	}
	for data, want := range map[string]string{
		`{}`:                    "",
		`{"lease_seconds":-1}`:  "5003 lease_seconds",
		`{"cancel":["x"]}`:      "5003 cancel[0]",
		`{"error":{}}`:          "5003 error.error_code",
		`{"paused_until":null}`: "5003 paused_until",
	} {
		if _, err := DecodeHeartbeatReply([]byte(data)); fieldOf(err) != want {
			t.Errorf("DecodeHeartbeatReply(%s) = %v, want %q", data, err, want)
		}
	}
	if _, err := json.Marshal(Heartbeat{}); fieldOf(err) != "5003 agent_id" {
		t.Errorf("json.Marshal(Heartbeat{}) = %v, want 5003 agent_id", err)
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	ids := []UUID{NewUUID(), NewUUID(), NewUUID()}
	for _, id := range ids {
		if !form.MatchString(string(id)) {
			t.Errorf("NewUUID() = %q, no version 4", id)
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 3 {
		t.Error("NewUUID gave one twice")
	}
	if id, err := ParseUUID(strings.ToUpper(anID)); id != anID || err != nil {
		t.Errorf("ParseUUID(upper case) = %q, %v, want %q", id, err, anID)
	}
}
