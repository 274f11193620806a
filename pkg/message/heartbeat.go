package message

import (
	"encoding/json"
	"slices"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

// States of a Heartbeat.
const (
	StateReady    = "ready"
	StateDraining = "draining"
	StateBroken   = "broken"  // it lives, but can't do its work; Detail says why
	StateStopped  = "stopped" // the last word of a runner that ended in order: it is not heard again in this boot
)

// A Heartbeat registers an agent and shows that it lives. It is no envelope: nothing in it is stored or passed on, and
// unknown fields are dropped.
type Heartbeat struct {
	AgentID          subject.AgentID   `json:"agent_id" wire:"need"`
	AgentType        subject.AgentType `json:"agent_type" wire:"need"`
	ProtocolVersions []string          `json:"protocol_versions" wire:"need"`
	Version          string            `json:"version,omitempty"` // of the program
	Host             string            `json:"host,omitempty"`
	Instance         string            `json:"instance,omitempty"` // of the process: two with one agent_id differ
	Boot             uint64            `json:"boot"`               // grows with every start
	Capabilities     []string          `json:"capabilities,omitzero"`
	Labels           map[string]string `json:"labels,omitzero"`
	Slots            int               `json:"slots"`
	Running          []Running         `json:"running,omitzero"`
	WorkDigest       string            `json:"work_digest,omitempty"` // of WorkTypes, to see that they changed
	WorkTypes        []Offer           `json:"work_types,omitzero"`   // nil when not sent
	Resources        HostResources     `json:"resources"`
	State            string            `json:"state,omitempty"`  // one of the States
	Detail           string            `json:"detail,omitempty"` // what is wrong, for people
	Refused          []Refusal         `json:"refused,omitzero"` // requests handed back before their start, of the last lease
}

// A Refusal is a request that an agent handed back before it began: no attempt was made.
type Refusal struct {
	TaskID  subject.TaskID `json:"task_id" wire:"need"`
	Code    fault.Code     `json:"error_code" wire:"need"`
	Message string         `json:"error_message" wire:"need"`
}

// Running is an attempt that an agent holds, and the boot in which it was started.
type Running struct {
	TaskID  subject.TaskID `json:"task_id" wire:"need"`
	Attempt int            `json:"attempt" wire:"need"`
	Boot    uint64         `json:"boot"`
}

// An Offer is a work type that an agent does.
type Offer struct {
	Name        string          `json:"name" wire:"need"`
	Description string          `json:"description,omitempty"`
	Attempts    int             `json:"attempts" wire:"need"` // executions allowed
	Parameters  json.RawMessage `json:"parameters,omitempty"` // JSON Schema
}

// HostResources is what the agent's host has.
type HostResources struct {
	CPUs         int     `json:"cpus,omitempty"`
	CPUPercent   float64 `json:"cpu_percent"`
	MemoryMB     int     `json:"memory_mb"`
	MemoryFreeMB int     `json:"memory_free_mb"`
	GPUVRAMMB    int     `json:"gpu_vram_mb"`
}

// A HeartbeatReply is what the orchestrator tells the agent. It may shorten a lease, only the log extends one.
type HeartbeatReply struct {
	ProtocolVersion string           `json:"protocol_version,omitempty"` // the lowest that both speak
	LeaseSeconds    float64          `json:"lease_seconds,omitempty"`
	Cancel          []subject.TaskID `json:"cancel,omitzero"`
	PausedUntil     *time.Time       `json:"paused_until,omitempty"` // take no new work until a reply says so no more
	Drain           bool             `json:"drain,omitempty"`        // take no new work until a reply says so no more
	DrainUntil      *time.Time       `json:"drain_until,omitempty"`  // of a drain: stop then what still runs
	Notice          string           `json:"notice,omitempty"`       // why it is paused or drained, for people
	SendWork        bool             `json:"send_work,omitempty"`    // the next heartbeat is to hold the work types
	StopAll         bool             `json:"stop_all,omitempty"`     // a newer process has this agent_id
	Consumers       []string         `json:"consumers,omitzero"`     // durables to pull from, first served first
	Error           *Failure         `json:"error,omitempty"`        // the agent is refused
}

// DecodeHeartbeat reads a heartbeat; the error is a fault 5003 with the path of the field that is wrong.
func DecodeHeartbeat(data []byte) (Heartbeat, error) { return plain[Heartbeat](data) }

// DecodeHeartbeatReply reads the answer; the error is a fault 5003 with the path of the field that is wrong.
func DecodeHeartbeatReply(data []byte) (HeartbeatReply, error) { return plain[HeartbeatReply](data) }

func plain[T any](data []byte) (T, error) {
	var v, none T
	err := scan(data)
	if err == nil {
		s := scanner{data: data}
		s.space()
		err = decode(data[s.pos:], &v)
	}
	if err != nil {
		return none, asFault(err)
	}
	return v, nil
}

// MarshalJSON writes the heartbeat; it refuses what DecodeHeartbeat would.
func (h Heartbeat) MarshalJSON() ([]byte, error) {
	b, err := encode(nil, &h)
	return b, asFault(err)
}

// MarshalJSON writes the reply; it refuses what DecodeHeartbeatReply would.
func (r HeartbeatReply) MarshalJSON() ([]byte, error) {
	b, err := encode(nil, &r)
	return b, asFault(err)
}

func (r *HeartbeatReply) check() error {
	if r.LeaseSeconds < 0 {
		return wrongf("lease_seconds", "must not be negative")
	}
	return nil
}

// NegotiateVersion picks the lowest version that both sides speak; without one the error is a fault 5006.
func NegotiateVersion(offered []string) (string, error) {
	for _, v := range Versions {
		if slices.Contains(offered, v) {
			return v, nil
		}
	}
	return "", otherVersion("", offered...)
}
