package message

import (
	"encoding/json"
	"errors"
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
