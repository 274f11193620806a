package message

import (
	"encoding/json"
	"reflect"
	"testing"

	"chiffon/pkg/subject"
)

func TestNewGoesThrough(t *testing.T) {
	t.Parallel()
	m := New(subject.Orchestrator, "infra", NewUUID(), NewUUID(), WorkRequest{
		TaskID: subject.TaskID(NewUUID()), WorkType: "survey_host", Parameters: json.RawMessage(`{"a":[1,2]}`),
		Hints: &Hints{MaxMemoryMB: 512},
	})
	m.Custom.Chiffon = &Extension{Name: "morning survey", Labels: map[string]string{"site": "attic"}}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode[WorkRequest](data)
	if err != nil {
		t.Fatalf("Decode(%s) = %v", data, err)
	}
	again, err := back.Encode()
	if err != nil || string(again) != string(data) {
		t.Errorf("Encode(Decode(data)) = %s, %v, want %s", again, err, data)
	}
	if back.Timestamp.Equal(m.Timestamp.Time) {
		back.Timestamp = m.Timestamp
	}
	back.odd = 0
	if !reflect.DeepEqual(back, m) {
		t.Errorf("Decode(%s) = %+v, want %+v", data, back, m)
	}
}
