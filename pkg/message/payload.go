package message

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"unicode/utf8"

	"chiffon/pkg/chunk"
	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

// MaxOutput is how many bytes of output one message may hold. Whoever has more sends chunks.
const MaxOutput = 1 << 20

// A Kind is what an envelope carries.
type Kind string

// The kinds of messages.
const (
	KindWorkRequest Kind = "work_request"
	KindWorkStatus  Kind = "work_status"
	KindWorkResult  Kind = "work_result"
	KindError       Kind = "error"
)

// A Payload is one of the protocol's payload types. The set is closed: a new kind is a change of protocol, not of a
// caller.
type Payload interface {
	WorkRequest | WorkStatus | WorkResult | Failure
	Kind() Kind
}

// A WorkRequest asks an agent for work.
type WorkRequest struct {
	TaskID     subject.TaskID  `json:"task_id" wire:"need"`
	WorkType   string          `json:"work_type" wire:"need"`
	Parameters json.RawMessage `json:"parameters" wire:"need"` // an object, may be empty
	Hints      *Hints          `json:"hints,omitempty"`
	rest
}

// Hints limit an execution; 0 is no limit, and never sent.
type Hints struct {
	MaxDurationSeconds int `json:"max_duration_seconds,omitempty"` // from the first start, over all attempts
	MaxMemoryMB        int `json:"max_memory_mb,omitempty"`        // of the whole process tree
	GPUVRAMMB          int `json:"gpu_vram_mb,omitempty"`          // must be free
	rest
}

// Words of WorkStatus.Status.
const (
	StatusRunning       = "running"
	StatusStepCompleted = "step_completed"
	StatusPaused        = "paused"
)

// A WorkStatus tells how far an attempt is.
type WorkStatus struct {
	TaskID          subject.TaskID `json:"task_id" wire:"need"`
	Status          string         `json:"status" wire:"need"`
	ProgressPercent *int           `json:"progress_percent,omitempty"` // 0–100
	Step            *Step          `json:"step,omitempty"`
	rest
}

// A Step is where the work is, and what it has said since the last status of this attempt.
type Step struct {
	Number         int    `json:"number" wire:"need"` // from 1 up
	Name           string `json:"name" wire:"need"`
	Output         string `json:"output,omitempty"`
	OutputEncoding string `json:"output_encoding,omitempty"` // "base64", or empty: Output is the text itself
	OutputChunk    string `json:"output_chunk,omitempty"`    // which bytes of the step's output, see pkg/chunk
	rest
}

// Bytes is the output as it was before Text.
func (s Step) Bytes() ([]byte, error) { return outputBytes(s.Output, s.OutputEncoding) }

// Words of WorkResult.Status.
const (
	ResultSuccess   = "success"
	ResultFailed    = "failed"
	ResultCancelled = "cancelled" // our extension
)

// A WorkResult is the outcome of work that ran: success with exit code 0, failed with 1–255, cancelled with any.
type WorkResult struct {
	TaskID         subject.TaskID `json:"task_id" wire:"need"`
	Status         string         `json:"status" wire:"need"`
	ExitCode       int            `json:"exit_code" wire:"need"`
	Output         string         `json:"output,omitempty"`          // the last 256 KiB
	OutputEncoding string         `json:"output_encoding,omitempty"` // as in Step
	ResourcesUsed  *ResourcesUsed `json:"resources_used,omitempty"`
	rest
}

// Bytes is the output as it was before Text.
func (r WorkResult) Bytes() ([]byte, error) { return outputBytes(r.Output, r.OutputEncoding) }

// ResourcesUsed is what the attempt that ended has used, over its whole process tree.
type ResourcesUsed struct {
	DurationSeconds int `json:"duration_seconds"` // rounded up
	GPUVRAMMB       int `json:"gpu_vram_mb"`
	CPUTimeMS       int `json:"cpu_time_ms"`
	rest
}

// A Failure is the payload of an error message: a fault on the wire.
type Failure struct {
	Code    fault.Code     `json:"error_code" wire:"need"`
	Message string         `json:"error_message" wire:"need"`
	Context map[string]any `json:"error_context,omitempty"` // decoded numbers are int, or json.Number where none fits
	rest
}

// FailureOf makes the payload that carries f.
func FailureOf(f *fault.Fault) Failure {
	return Failure{Code: f.Code, Message: f.Message, Context: maps.Clone(f.Context)}
}

// Fault is the fault that the payload carries.
func (f Failure) Fault() *fault.Fault {
	return &fault.Fault{Code: f.Code, Message: f.Message, Context: maps.Clone(f.Context)}
}

// Kind is KindWorkRequest.
func (WorkRequest) Kind() Kind { return KindWorkRequest }

// Kind is KindWorkStatus.
func (WorkStatus) Kind() Kind { return KindWorkStatus }

// Kind is KindWorkResult.
func (WorkResult) Kind() Kind { return KindWorkResult }

// Kind is KindError.
func (Failure) Kind() Kind { return KindError }

// Text makes output fit to send: as it is, or in base64 when it is no UTF-8 or takes less room so.
func Text(p []byte) (text, encoding string) {
	if utf8.Valid(p) && escapedLen(p) <= base64.StdEncoding.EncodedLen(len(p)) {
		return string(p), ""
	}
	return base64.StdEncoding.EncodeToString(p), "base64"
}

func outputBytes(text, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(text), nil
	case "base64":
		p, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, wrongf("output", "is not base64, as output_encoding says")
		}
		return p, nil
	}
	return nil, wrongf("output_encoding", "must be base64 or absent, not %.32q", encoding)
}

func checkOutput(text, encoding string) error {
	size := len(text)
	if encoding != "" {
		p, err := outputBytes(text, encoding)
		if err != nil {
			return err
		}
		size = len(p)
	}
	if size > MaxOutput {
		return wrongf("output", "has %d bytes, more than the %d allowed; send it in chunks", size, MaxOutput)
	}
	return nil
}

func (w *WorkRequest) check() error {
	switch {
	case w.WorkType == "":
		return wrongf("work_type", "is empty")
	case len(w.WorkType) > 128:
		return wrongf("work_type", "has %d bytes, more than the 128 allowed", len(w.WorkType))
	}
	for _, c := range w.WorkType {
		if c < ' ' || c == 0x7f {
			return wrongf("work_type", "has a control character in it")
		}
	}
	if !isObject(w.Parameters) {
		return wrongf("parameters", "must be an object")
	}
	return nil
}

func isObject(raw json.RawMessage) bool {
	s := scanner{data: raw}
	return s.peek() == '{'
}

func (h *Hints) check() error {
	for i, v := range []int{h.MaxDurationSeconds, h.MaxMemoryMB, h.GPUVRAMMB} {
		if v < 0 || v == 0 && h.odd&(1<<i) != 0 {
			name := []string{"max_duration_seconds", "max_memory_mb", "gpu_vram_mb"}[i]
			return wrongf(name, "must be greater than 0; leave it out for no limit")
		}
	}
	return nil
}

func (w *WorkStatus) check() error {
	switch w.Status {
	case StatusRunning, StatusStepCompleted, StatusPaused:
	default:
		return wrongf("status", "must be running, step_completed or paused, not %.32q", w.Status)
	}
	if p := w.ProgressPercent; p != nil && (*p < 0 || *p > 100) {
		return wrongf("progress_percent", "must be 0 to 100, not %d", *p)
	}
	return nil
}

func (s *Step) check() error {
	if s.Number < 1 {
		return wrongf("number", "must be 1 or more, not %d", s.Number)
	}
	if s.OutputChunk != "" {
		if _, err := chunk.Parse(s.OutputChunk); err != nil {
			return wrongf("output_chunk", "%s", err)
		}
	}
	return checkOutput(s.Output, s.OutputEncoding)
}

func (r *WorkResult) check() error {
	switch r.Status {
	case ResultSuccess:
		if r.ExitCode != 0 {
			return wrongf("exit_code", "must be 0 with status success, not %d", r.ExitCode)
		}
	case ResultFailed:
		if r.ExitCode < 1 || r.ExitCode > 255 {
			return wrongf("exit_code", "must be 1 to 255 with status failed, not %d", r.ExitCode)
		}
	case ResultCancelled:
		if r.ExitCode < 0 || r.ExitCode > 255 {
			return wrongf("exit_code", "must be 0 to 255, not %d", r.ExitCode)
		}
	default:
		return wrongf("status", "must be success, failed or cancelled, not %.32q", r.Status)
	}
	return checkOutput(r.Output, r.OutputEncoding)
}

func (u *ResourcesUsed) check() error {
	switch {
	case u.DurationSeconds < 0:
		return wrongf("duration_seconds", "must not be negative")
	case u.GPUVRAMMB < 0:
		return wrongf("gpu_vram_mb", "must not be negative")
	case u.CPUTimeMS < 0:
		return wrongf("cpu_time_ms", "must not be negative")
	}
	return nil
}

func (f *Failure) check() error {
	if !f.Code.Valid() {
		return wrongf("error_code", "must be 5001 to 5999, not %d", int(f.Code))
	}
	return nil
}
