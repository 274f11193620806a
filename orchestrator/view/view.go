// Package view is what people and programs see of tasks and agents: the JSON shapes of the HTTP API.
// It does not know where the facts come from (ledger, registry) nor how they travel (api, client).
package view

import (
	"encoding/json"
	"time"
)

// States a task can be in; the last four are ends.
const (
	Queued     = "queued"
	Held       = "held"
	Running    = "running"
	Paused     = "paused"
	Cancelling = "cancelling"
	Succeeded  = "succeeded"
	Failed     = "failed"
	Cancelled  = "cancelled"
	Error      = "error"
)

// States lists all of them in the order of a task's life.
var States = []string{Queued, Held, Running, Paused, Cancelling, Succeeded, Failed, Cancelled, Error}

// Ended reports whether a state is an end.
func Ended(state string) bool {
	return state == Succeeded || state == Failed || state == Cancelled || state == Error
}

// A Task is one piece of work as it stands now. Lists leave out Parameters and Result.Output.
type Task struct {
	TaskID          string            `json:"task_id" doc:"UUID of the task"`
	Name            string            `json:"name,omitempty" doc:"What the submitter calls it"`
	State           string            `json:"state" enum:"queued,held,running,paused,cancelling,succeeded,failed,cancelled,error"`
	AgentType       string            `json:"agent_type"`
	WorkType        string            `json:"work_type"`
	Priority        string            `json:"priority" enum:"critical,high,normal,low"`
	Agent           string            `json:"agent,omitempty" doc:"The agent that was asked for"`
	On              map[string]string `json:"on,omitempty" doc:"Labels that the agent must have"`
	Needs           []string          `json:"needs,omitempty" nullable:"false" doc:"Capabilities that the agent must claim"`
	Labels          map[string]string `json:"labels,omitempty" doc:"Labels of the task"`
	Parameters      json.RawMessage   `json:"parameters,omitempty" doc:"Parameters of the work, as submitted"`
	Hints           *Hints            `json:"hints,omitempty"`
	RequestID       string            `json:"request_id"`
	TraceID         string            `json:"trace_id"`
	SubmittedBy     string            `json:"submitted_by,omitempty"`
	AgentID         string            `json:"agent_id,omitempty" doc:"The agent that runs it, or ran it last"`
	Attempt         int               `json:"attempt" doc:"Executions begun so far"`
	Attempts        int               `json:"attempts,omitempty" doc:"Executions allowed; known from the first start on"`
	ProgressPercent *int              `json:"progress_percent,omitempty" minimum:"0" maximum:"100"`
	Step            *Step             `json:"step,omitempty"`
	WaitingFor      string            `json:"waiting_for,omitempty" doc:"Why it does not run yet, in words"`
	RetryAt         *time.Time        `json:"retry_at,omitempty" doc:"When the next attempt is due"`
	ExpiresAt       *time.Time        `json:"expires_at,omitempty" doc:"When its time in the queue is over"`
	SubmittedAt     time.Time         `json:"submitted_at"`
	StartedAt       *time.Time        `json:"started_at,omitempty" doc:"Start of the latest attempt"`
	EndedAt         *time.Time        `json:"ended_at,omitempty"`
	Result          *Result           `json:"result,omitempty" doc:"Of a task that ended with a work_result"`
	Error           *Fault            `json:"error,omitempty" doc:"Of a task that ended with an error, or of its last failed attempt"`
}

// Hints limit an execution; 0 means no limit.
type Hints struct {
	MaxDurationSeconds int `json:"max_duration_seconds,omitempty" minimum:"0" doc:"Longest time over all attempts, in seconds"`
	MaxMemoryMB        int `json:"max_memory_mb,omitempty" minimum:"0" doc:"Memory of the whole process tree, in MB"`
	GPUVRAMMB          int `json:"gpu_vram_mb,omitempty" minimum:"0" doc:"Video memory that must be free, in MB"`
}

// A Step is where a running task is.
type Step struct {
	Number int    `json:"number" minimum:"1"`
	Name   string `json:"name"`
}

// A Result is the recorded work_result.
type Result struct {
	Status         string    `json:"status" enum:"success,failed,cancelled"`
	ExitCode       int       `json:"exit_code"`
	Output         string    `json:"output,omitempty" doc:"The last 256 KiB of the output; the events of the task have what came before"`
	OutputEncoding string    `json:"output_encoding,omitempty" enum:"base64" doc:"Set when output is not text"`
	OutputBytes    int64     `json:"output_bytes" doc:"How much output there was in all"`
	ResourcesUsed  Resources `json:"resources_used"`
}

// Resources is what an attempt used, over its whole process tree.
type Resources struct {
	DurationSeconds int `json:"duration_seconds"`
	GPUVRAMMB       int `json:"gpu_vram_mb"`
	CPUTimeMS       int `json:"cpu_time_ms"`
}

// A Fault is one of the protocol's errors.
type Fault struct {
	Code    int            `json:"error_code" minimum:"5001" maximum:"5999"`
	Message string         `json:"error_message"`
	Context map[string]any `json:"error_context,omitempty"`
}

// An Event is one entry of a task's log, one status, a gap where statuses have expired, or the end mark.
type Event struct {
	ID      string          `json:"id" doc:"<sequence in the task log>.<sequence in the status stream>; resume with it as Last-Event-ID"`
	Kind    string          `json:"kind" doc:"Kind of the log entry, or status, gap, end"`
	Time    time.Time       `json:"time"`
	AgentID string          `json:"agent_id,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Void    string          `json:"void,omitempty" doc:"Why this entry does not count"`
	Missing int             `json:"missing,omitempty" doc:"Of a gap: statuses that are not there any more"`
	Message json.RawMessage `json:"message,omitempty" doc:"The protocol message as it is stored"`
	Task    *Task           `json:"task,omitempty" doc:"Of the end mark: the task as it ended"`
}

// An Agent is one registered identity.
type Agent struct {
	AgentID      string            `json:"agent_id"`
	AgentType    string            `json:"agent_type"`
	State        string            `json:"state" enum:"ready,draining,broken,silent" doc:"broken: it lives, but cannot do its work; silent: no heartbeat for a lease"`
	Detail       string            `json:"detail,omitempty" doc:"What is wrong with it, by its own word"`
	Host         string            `json:"host,omitempty"`
	Version      string            `json:"version,omitempty"`
	Slots        int               `json:"slots"`
	Running      []Holding         `json:"running" nullable:"false"`
	Capabilities []string          `json:"capabilities" nullable:"false"`
	Labels       map[string]string `json:"labels"`
	WorkTypes    []WorkType        `json:"work_types" nullable:"false"`
	Resources    HostResources     `json:"resources"`
	FirstSeen    time.Time         `json:"first_seen"`
	LastSeen     *time.Time        `json:"last_seen,omitempty" doc:"Last heartbeat that this orchestrator heard"`
}

// A Holding is an attempt that an agent says it holds.
type Holding struct {
	TaskID  string `json:"task_id"`
	Attempt int    `json:"attempt"`
}

// A WorkType is how an agent does one kind of work.
type WorkType struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Attempts    int             `json:"attempts" doc:"Executions allowed"`
	Parameters  json.RawMessage `json:"parameters,omitempty" doc:"JSON Schema of its parameters"`
}

// HostResources is what an agent's host has.
type HostResources struct {
	CPUs         int     `json:"cpus,omitempty"`
	CPUPercent   float64 `json:"cpu_percent"`
	MemoryMB     int     `json:"memory_mb"`
	MemoryFreeMB int     `json:"memory_free_mb"`
	GPUVRAMMB    int     `json:"gpu_vram_mb"`
}

// A Check is one finding of doctor.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Cure   string `json:"cure,omitempty"`
}
