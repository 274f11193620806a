// Package fault is the protocol's table of errors: the permanent codes, what each means, whether it may be retried
// and what its context says. It does not know how a fault travels; pkg/message does.
package fault

import (
	"fmt"
	"maps"
	"strings"
)

// A Code is the permanent number of an error. The protocol gives a meaning to 5001–5006 and reserves the rest up to
// 5999: such a code is kept as it is, and never retried.
type Code int

// The codes that have a meaning.
const (
	Timeout               Code = 5001
	AgentUnavailable      Code = 5002
	InvalidMessage        Code = 5003
	AuthenticationFailed  Code = 5004
	ResourceLimitExceeded Code = 5005
	UnsupportedWorkType   Code = 5006
)

// Codes lists the codes that have a meaning, in order.
var Codes = []Code{
	Timeout, AgentUnavailable, InvalidMessage, AuthenticationFailed, ResourceLimitExceeded, UnsupportedWorkType,
}

// A Field is one entry of the context that a code comes with. Type is one of int, string, string[] and datetime.
type Field struct {
	Name, Type string
	Nullable   bool
}

type entry struct {
	name, meaning string
	retryable     bool
	context       []Field
}

var table = map[Code]entry{
	Timeout: {"Timeout", "No answer came before the deadline", true,
		[]Field{{"attempted_retries", "int", false}, {"last_attempt", "datetime", false}}},
	AgentUnavailable: {"Agent Unavailable", "The agent or the broker cannot be reached", true,
		[]Field{{"agent_id", "string", false}, {"last_heartbeat", "datetime", true}}},
	InvalidMessage: {"Invalid Message", "Not JSON, or a field is missing or wrong", false,
		[]Field{{"validation_error", "string", false}, {"field_name", "string", true}}},
	AuthenticationFailed: {"Authentication Failed", "A token or a signature was refused", false,
		[]Field{{"agent_id", "string", false}, {"token_status", "string", false}}},
	ResourceLimitExceeded: {"Resource Limit Exceeded", "More GPU memory, CPU or memory was asked for than there is", true,
		[]Field{{"limit_name", "string", false}, {"available", "int", false}, {"required", "int", false}}},
	UnsupportedWorkType: {"Unsupported Work Type", "Nobody knows the work type, or the protocol version", false,
		[]Field{{"work_type_requested", "string", false}, {"supported_types", "string[]", false}}},
}

// Valid reports whether the code is in the protocol's range, 5001 to 5999.
func (c Code) Valid() bool { return c >= 5001 && c <= 5999 }

// Name is the code's title, such as "Agent Unavailable"; "Error 5042" for a code without a meaning of its own.
func (c Code) Name() string {
	if e, ok := table[c]; ok {
		return e.name
	}
	return fmt.Sprintf("Error %d", int(c))
}

// Meaning is one sentence without a full stop; empty for a code without a meaning of its own.
func (c Code) Meaning() string { return table[c].meaning }

// Retryable reports whether the protocol allows to try again what failed with this code.
func (c Code) Retryable() bool { return table[c].retryable }

// Context lists the entries that error_context has for this code. The caller must not change it.
func (c Code) Context() []Field { return table[c].context }

// A Fault is an error that crosses the wire.
type Fault struct {
	Code    Code
	Message string         // one sentence for a person
	Context map[string]any // what Code.Context lists, and whatever else helps; nil when there is nothing
}

// New makes a fault whose message is formatted like fmt.Sprintf.
func New(code Code, format string, args ...any) *Fault {
	return &Fault{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes a fault 5003 about a field, named by its path ("payload.step.number"), or about the message as a
// whole when field is empty. The text goes on after the path: Invalid("payload.exit_code", "must be 0").
func Invalid(field, format string, args ...any) *Fault {
	text := fmt.Sprintf(format, args...)
	if field == "" {
		return New(InvalidMessage, "%s", text).With("validation_error", text).With("field_name", nil)
	}
	return New(InvalidMessage, "%s: %s", field, text).With("validation_error", text).With("field_name", field)
}

// Unsupported makes a fault 5006 about a work type; supported is what is known instead.
func Unsupported(workType string, supported []string) *Fault {
	known := "no work type is supported here"
	if len(supported) > 0 {
		known = "supported: " + strings.Join(supported, ", ")
	}
	return New(UnsupportedWorkType, "work type %q is not supported; %s", workType, known).
		With("work_type_requested", workType).With("supported_types", append([]string{}, supported...))
}

// With adds an entry to the context of f and returns f.
func (f *Fault) With(key string, value any) *Fault {
	if f.Context == nil {
		f.Context = map[string]any{}
	}
	f.Context[key] = value
	return f
}

// Clone returns a fault that shares nothing with f but the values in its context.
func (f *Fault) Clone() *Fault { return &Fault{f.Code, f.Message, maps.Clone(f.Context)} }

// Error gives the number, the name and the message.
func (f *Fault) Error() string {
	return fmt.Sprintf("%d %s: %s", int(f.Code), f.Code.Name(), f.Message)
}

// Field is the path of the field that a fault 5003 is about; empty when it is about none.
func (f *Fault) Field() string {
	name, _ := f.Context["field_name"].(string)
	return name
}
