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
	WaitingFor      string            `json:"waiting_for,omitempty" doc:"What it waits for, in words: why it does not run yet, or whose word is missing"`
	SilentSince     *time.Time        `json:"silent_since,omitempty" doc:"Last sign of life of the agent that holds it, when that is silent: the work may still be running"`
	Cancel          *Cancel           `json:"cancel,omitempty" doc:"The stop that is wanted, or was"`
	RetryOf         string            `json:"retry_of,omitempty" doc:"The ended task that was started anew as this one"`
	RetryAt         *time.Time        `json:"retry_at,omitempty" doc:"When the next attempt is due"`
	ExpiresAt       *time.Time        `json:"expires_at,omitempty" doc:"When its time in the queue is over"`
	SubmittedAt     time.Time         `json:"submitted_at"`
	StartedAt       *time.Time        `json:"started_at,omitempty" doc:"Start of the latest attempt"`
	EndedAt         *time.Time        `json:"ended_at,omitempty"`
	Result          *Result           `json:"result,omitempty" doc:"Of a task that ended with a work_result"`
	Late            []Late            `json:"late,omitempty" nullable:"false" doc:"Outcomes that came too late to be recorded"`
	Error           *Fault            `json:"error,omitempty" doc:"Of a task that ended with an error, or of its last failed attempt"`
}

// A Late outcome is what an attempt came to, told when it could not be recorded any more.
type Late struct {
	AgentID string    `json:"agent_id"`
	Attempt int       `json:"attempt"`
	Time    time.Time `json:"time"`
	Outcome string    `json:"outcome,omitempty" doc:"The entry that it would have been: succeeded, failed, cancelled, attempt_failed or error"`
}

// A Cancel says who wants a task stopped, why, and how.
type Cancel struct {
	By           string     `json:"by,omitempty"`
	Reason       string     `json:"reason,omitempty"`
	At           *time.Time `json:"at,omitempty"`
	Signal       string     `json:"signal,omitempty"`
	GraceSeconds int        `json:"grace_seconds,omitempty" doc:"Between the signal and the kill"`
	Force        bool       `json:"force,omitempty"`
	Deadline     bool       `json:"deadline,omitempty" doc:"Its time was over; nobody asked"`
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
	Kind    string          `json:"kind" doc:"Kind of the log entry, or status, gap, end; in a history late: an outcome that came too late to be recorded"`
	Time    time.Time       `json:"time"`
	AgentID string          `json:"agent_id,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Writer  string          `json:"writer,omitempty" doc:"Of an entry: who appended it, an agent_id or orchestrator"`
	Holder  string          `json:"holder,omitempty" doc:"Of an entry: the agent that holds, or held last, the task after it"`
	Cause   string          `json:"cause,omitempty" doc:"Of an entry: why it was appended, in words"`
	Void    string          `json:"void,omitempty" doc:"Why this entry does not count"`
	Missing int             `json:"missing,omitempty" doc:"Of a gap: statuses that are not there any more"`
	Message json.RawMessage `json:"message,omitempty" doc:"The protocol message as it is stored"`
	Task    *Task           `json:"task,omitempty" doc:"Of the end mark: the task as it ended"`
}

// An Agent is one registered identity.
type Agent struct {
	AgentID      string            `json:"agent_id"`
	AgentType    string            `json:"agent_type"`
	State        string            `json:"state" enum:"ready,paused,draining,broken,silent,stopped" doc:"paused: it gets no new work, by a person's word or its breaker's; broken: it lives, but cannot do its work; silent: no heartbeat for a lease; stopped: its runner has ended in order and said so"`
	Detail       string            `json:"detail,omitempty" doc:"Why, in words"`
	PausedUntil  *time.Time        `json:"paused_until,omitempty" doc:"When it is resumed by itself"`
	DrainUntil   *time.Time        `json:"drain_until,omitempty" doc:"When what still runs is stopped"`
	Breaker      *Breaker          `json:"breaker,omitempty" doc:"Of an agent that has failed lately"`
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

// A Breaker keeps new work from an agent that fails again and again.
type Breaker struct {
	AgentID  string     `json:"agent_id"`
	State    string     `json:"state" enum:"closed,open,half-open"`
	Failures int        `json:"failures" doc:"In a row"`
	Reason   string     `json:"reason,omitempty" doc:"The latest failure"`
	Since    *time.Time `json:"since,omitempty" doc:"When it came into this state"`
	Until    *time.Time `json:"until,omitempty" doc:"When the agent is asked for a sign of life, of an open one"`
}

// A Why says in plain sentences why a task or an agent is where it is.
type Why struct {
	ID      string   `json:"id" doc:"Of the task or the agent"`
	State   string   `json:"state"`
	Because []string `json:"because" nullable:"false" doc:"Sentences, the weightiest first"`
	Next    string   `json:"next,omitempty" doc:"What happens next by itself, and when, or what a person can do"`
}

// A History is what happened to a task, entry by entry.
type History struct {
	TaskID     string  `json:"task_id"`
	Events     []Event `json:"events" nullable:"false" doc:"Every entry of the log, void ones too, without the messages, which the events of the task have"`
	NextCursor string  `json:"next_cursor,omitempty" doc:"Ask with it for those behind"`
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
