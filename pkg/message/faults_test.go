package message

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFaultsNameTheField(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxOutput+1)
	for name, c := range map[string]struct {
		example string
		edits   map[string]any
		want    string
	}{
		"no version":              {"work_request", map[string]any{"protocol_version": nil}, "5003 protocol_version"},
		"version is no string":    {"work_request", map[string]any{"protocol_version": 1}, "5003 protocol_version"},
		"empty version":           {"work_request", map[string]any{"protocol_version": ""}, "5003 protocol_version"},
		"version 2.0":             {"work_request", map[string]any{"protocol_version": "2.0"}, "5006"},
		"version 2.0, no id":      {"work_request", map[string]any{"protocol_version": "2.0", "message_id": nil}, "5006"},
		"no message id":           {"work_request", map[string]any{"message_id": nil}, "5003 message_id"},
		"message id is no UUID":   {"work_request", map[string]any{"message_id": "17"}, "5003 message_id"},
		"UUID with wrong dashes":  {"work_request", map[string]any{"message_id": strings.ReplaceAll(anID, "-", "0")}, "5003 message_id"},
		"no sender":               {"work_request", map[string]any{"from_agent": nil}, "5003 from_agent"},
		"sender in capitals":      {"work_request", map[string]any{"from_agent": "Infra"}, "5003 from_agent"},
		"recipient is a list":     {"work_request", map[string]any{"to_agent": []string{"infra"}}, "5003 to_agent"},
		"no timestamp":            {"work_request", map[string]any{"timestamp": nil}, "5003 timestamp"},
		"timestamp in words":      {"work_request", map[string]any{"timestamp": "yesterday"}, "5003 timestamp"},
		"date only":               {"work_request", map[string]any{"timestamp": "2026-01-19"}, "5003 timestamp"},
		"trace id all zero":       {"work_request", map[string]any{"trace_id": string(nilUUID)}, "5003 trace_id"},
		"no request id":           {"work_request", map[string]any{"request_id": nil}, "5003 request_id"},
		"unknown type":            {"work_request", map[string]any{"type": "work_order"}, "5003 type"},
		"no payload":              {"work_request", map[string]any{"payload": nil}, "5003 payload"},
		"payload is a string":     {"work_request", map[string]any{"payload": "run"}, "5003 payload"},
		"custom fields are null":  {"work_request", map[string]any{"x_custom_fields": json.RawMessage("null")}, "5003 x_custom_fields"},
		"custom fields are list":  {"work_request", map[string]any{"x_custom_fields": []int{}}, "5003 x_custom_fields"},
		"agent id":                {"work_request", map[string]any{"x_custom_fields": map[string]any{"agent_id": "any"}}, "5003 x_custom_fields.agent_id"},
		"labels":                  {"work_request", map[string]any{"x_custom_fields": map[string]any{"chiffon": map[string]any{"labels": map[string]any{"a": 1}}}}, "5003 x_custom_fields.chiffon.labels.a"},
		"needs":                   {"work_request", map[string]any{"x_custom_fields": map[string]any{"chiffon": map[string]any{"needs": []any{"gpu", 7}}}}, "5003 x_custom_fields.chiffon.needs[1]"},
		"null in a list":          {"work_request", map[string]any{"x_custom_fields": map[string]any{"chiffon": map[string]any{"needs": []any{nil}}}}, "5003 x_custom_fields.chiffon.needs[0]"},
		"no task id":              {"work_request", map[string]any{"payload.task_id": nil}, "5003 payload.task_id"},
		"task id is no UUID":      {"work_request", map[string]any{"payload.task_id": "task-1"}, "5003 payload.task_id"},
		"no work type":            {"work_request", map[string]any{"payload.work_type": nil}, "5003 payload.work_type"},
		"empty work type":         {"work_request", map[string]any{"payload.work_type": ""}, "5003 payload.work_type"},
		"control in work type":    {"work_request", map[string]any{"payload.work_type": "a\nb"}, "5003 payload.work_type"},
		"no parameters":           {"work_request", map[string]any{"payload.parameters": nil}, "5003 payload.parameters"},
		"parameters are a list":   {"work_request", map[string]any{"payload.parameters": []int{}}, "5003 payload.parameters"},
		"parameters are null":     {"work_request", map[string]any{"payload.parameters": json.RawMessage("null")}, "5003 payload.parameters"},
		"hints are null":          {"work_request", map[string]any{"payload.hints": json.RawMessage("null")}, "5003 payload.hints"},
		"no time":                 {"work_request", map[string]any{"payload.hints.max_duration_seconds": 0}, "5003 payload.hints.max_duration_seconds"},
		"negative memory":         {"work_request", map[string]any{"payload.hints.max_memory_mb": -1}, "5003 payload.hints.max_memory_mb"},
		"broken memory":           {"work_request", map[string]any{"payload.hints.gpu_vram_mb": 1.5}, "5003 payload.hints.gpu_vram_mb"},
		"unknown status":          {"work_status", map[string]any{"payload.status": "done"}, "5003 payload.status"},
		"101 percent":             {"work_status", map[string]any{"payload.progress_percent": 101}, "5003 payload.progress_percent"},
		"percent as text":         {"work_status", map[string]any{"payload.progress_percent": "50"}, "5003 payload.progress_percent"},
		"step null":               {"work_status", map[string]any{"payload.step": json.RawMessage("null")}, "5003 payload.step"},
		"step 0":                  {"work_status", map[string]any{"payload.step.number": 0}, "5003 payload.step.number"},
		"step without number":     {"work_status", map[string]any{"payload.step.number": nil}, "5003 payload.step.number"},
		"step without name":       {"work_status", map[string]any{"payload.step.name": nil}, "5003 payload.step.name"},
		"output is no base64":     {"work_status", map[string]any{"payload.step.output": "@", "payload.step.output_encoding": "base64"}, "5003 payload.step.output"},
		"unknown encoding":        {"work_status", map[string]any{"payload.step.output_encoding": "gzip"}, "5003 payload.step.output_encoding"},
		"much output":             {"work_status", map[string]any{"payload.step.output": long}, "5003 payload.step.output"},
		"chunk":                   {"chunk_1", map[string]any{"payload.step.output_chunk": "all"}, "5003 payload.step.output_chunk"},
		"no exit code":            {"work_result_success", map[string]any{"payload.exit_code": nil}, "5003 payload.exit_code"},
		"success with 1":          {"work_result_success", map[string]any{"payload.exit_code": 1}, "5003 payload.exit_code"},
		"failed with 0":           {"work_result_failed", map[string]any{"payload.exit_code": 0}, "5003 payload.exit_code"},
		"failed with 256":         {"work_result_failed", map[string]any{"payload.exit_code": 256}, "5003 payload.exit_code"},
		"result running":          {"work_result_failed", map[string]any{"payload.status": "running"}, "5003 payload.status"},
		"negative duration":       {"work_result_failed", map[string]any{"payload.resources_used.duration_seconds": -1}, "5003 payload.resources_used.duration_seconds"},
		"output null":             {"work_result_failed", map[string]any{"payload.output": json.RawMessage("null")}, "5003 payload.output"},
		"no error code":           {"error", map[string]any{"payload.error_code": nil}, "5003 payload.error_code"},
		"error code 404":          {"error", map[string]any{"payload.error_code": 404}, "5003 payload.error_code"},
		"error code 5000":         {"error", map[string]any{"payload.error_code": 5000}, "5003 payload.error_code"},
		"no error message":        {"error", map[string]any{"payload.error_message": nil}, "5003 payload.error_message"},
		"context is a list":       {"error", map[string]any{"payload.error_context": []int{}}, "5003 payload.error_context"},
		"error code 5999 is kept": {"error", map[string]any{"payload.error_code": 5999}, ""},
		"null inside context":     {"error", map[string]any{"payload.error_context": map[string]any{"last_heartbeat": json.RawMessage("null")}}, ""},
		"empty parameters":        {"work_request", map[string]any{"payload.parameters": map[string]any{}}, ""},
		"no hints":                {"work_request", map[string]any{"payload.hints": nil}, ""},
		"empty hints":             {"work_request", map[string]any{"payload.hints": map[string]any{}}, ""},
		"no custom fields":        {"work_request", map[string]any{"x_custom_fields": nil}, ""},
		"no step, no progress":    {"work_status", map[string]any{"payload.step": nil, "payload.progress_percent": nil}, ""},
		"progress 0":              {"work_status", map[string]any{"payload.progress_percent": 0}, ""},
		"empty output":            {"work_status", map[string]any{"payload.step.output": ""}, ""},
		"as much as may be":       {"work_status", map[string]any{"payload.step.output": long[1:]}, ""},
		"cancelled":               {"work_result_failed", map[string]any{"payload.status": "cancelled", "payload.exit_code": 143}, ""},
		"no resources":            {"work_result_failed", map[string]any{"payload.resources_used": nil}, ""},
		"some resources":          {"work_result_failed", map[string]any{"payload.resources_used": map[string]any{"cpu_time_ms": 0}}, ""},
		"other type of agent":     {"work_request", map[string]any{"to_agent": "lab_2"}, ""},
		"time without offset":     {"work_request", map[string]any{"timestamp": "2026-01-19T04:21:04"}, ""},
		"comma and short offset":  {"work_request", map[string]any{"timestamp": "2026-01-19T04:21:04,25+0100"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := edited(t, c.example, c.edits)
			m, err := Read(data)
			if got := fieldOf(err); got != c.want {
				t.Fatalf("Read(%.2000s) = %v, want %q", data, err, c.want)
			}
			if err != nil {
				return
			}
			back, err := m.Encode()
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, back, data)
		})
	}
}
