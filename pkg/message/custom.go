package message

import (
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

// Custom is x_custom_fields. Keys of others are kept.
type Custom struct {
	AgentID     subject.AgentID `json:"agent_id,omitempty"`     // the sender; empty for the orchestrator
	OutputBytes int64           `json:"output_bytes,omitempty"` // of an end: how much output the attempt had
	Chiffon     *Extension      `json:"chiffon,omitempty"`
	rest
}

func (c *Custom) check() error {
	if c.OutputBytes < 0 {
		return wrongf("output_bytes", "must not be negative")
	}
	return nil
}

// An Extension is what Chiffon says where the protocol has no field.
type Extension struct {
	// Of a request.
	Name         string            `json:"name,omitempty"`
	Description  string            `json:"description,omitempty"`
	SubmittedBy  string            `json:"submitted_by,omitempty"`
	Priority     string            `json:"priority,omitempty"`
	Agent        string            `json:"agent,omitempty"`          // the only agent that may do it
	On           map[string]string `json:"on,omitzero"`              // labels that the agent must have
	Labels       map[string]string `json:"labels,omitzero"`          // of the task
	Needs        []string          `json:"needs,omitzero"`           // capabilities that the agent must claim
	Dependencies []string          `json:"dependencies,omitzero"`    // tasks that must have succeeded
	ParentTaskID string            `json:"parent_task_id,omitempty"` // the task that submitted this one
	RetryOf      string            `json:"retry_of,omitempty"`       // the ended task that a person started anew
	Expires      *time.Time        `json:"expires,omitempty"`        // end of its time in the queue
	Digest       string            `json:"digest,omitempty"`         // of the content, to recognise a repetition
	Hold         *Hold             `json:"hold,omitempty"`

	// Of the entries that follow it.
	Attempt     int        `json:"attempt,omitempty"`      // of a status: the attempt that it speaks of
	Attempts    int        `json:"attempts,omitempty"`     // executions allowed
	RetryAt     *time.Time `json:"retry_at,omitempty"`     // of a failed attempt
	Silent      bool       `json:"silent,omitempty"`       // the holder gave no sign of life
	Gone        bool       `json:"gone,omitempty"`         // the holder's runner has started anew without it
	Cancel      *Cancel    `json:"cancel,omitempty"`       // stop is wanted
	StatusCount int        `json:"status_count,omitempty"` // of an end: statuses that its attempt has published
	Late        bool       `json:"late,omitempty"`         // an outcome that may not be recorded any more
	Outcome     string     `json:"outcome,omitempty"`      // of a late outcome: the entry that it would have been
	ExitCode    *int       `json:"exit_code,omitempty"`    // likewise, of a result
	ErrorCode   fault.Code `json:"error_code,omitempty"`   // likewise, of an error
	Host        string     `json:"host,omitempty"`         // where the attempt runs
	Begun       bool       `json:"begun,omitempty"`        // of a failure: the work had begun
	rest
}

// A Hold says why a request may not start yet: dependencies, placement or approval.
type Hold struct {
	Reason string     `json:"reason,omitempty"`
	Detail string     `json:"detail,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
	rest
}

// A Cancel says who wants a task stopped, why and how.
type Cancel struct {
	Reason       string `json:"reason,omitempty"`
	By           string `json:"by,omitempty"`
	GraceSeconds int    `json:"grace_seconds,omitempty"` // between Signal and the kill
	Signal       string `json:"signal,omitempty"`
	Force        bool   `json:"force,omitempty"`    // end the task although nobody knows what its holder does
	Deadline     bool   `json:"deadline,omitempty"` // its time is over; nobody asked
	rest
}
