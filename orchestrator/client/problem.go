package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Problem is the server's answer to a call that it did not carry out (RFC 9457).
type Problem struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Detail    string  `json:"detail"`
	Instance  string  `json:"instance"`
	ErrorCode int     `json:"error_code"` // 5001–5999 where the protocol has a code for it, else 0
	TraceID   string  `json:"trace_id"`
	TaskID    string  `json:"task_id"`
	Errors    []Fault `json:"errors"`

	Context map[string]any `json:"error_context"` // what the protocol says with ErrorCode, as supported_types

	// RetryAfter is how long the server asks to wait; 0 when it does not invite a second try.
	RetryAfter time.Duration `json:"-"`

	// Maybe is what is to be said if the call may have been carried out.
	Maybe string `json:"-"`
}

// A Fault of a Problem names one field ("body.agent_type") and what is wrong with it.
type Fault struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error is the problem in one or more lines for a person: the detail, then a line for each field.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(cmp.Or(p.Detail, p.Title, http.StatusText(p.Status), "unknown problem"))
	if p.ErrorCode != 0 {
		fmt.Fprintf(&b, " (%d)", p.ErrorCode)
	}
	for _, f := range p.Errors {
		if f.Message == p.Detail || p.Status == http.StatusNotFound {
			continue // the detail has said it
		}
		b.WriteString("\n  ")
		if f.Location != "" && !strings.HasPrefix(f.Location, "path.") { // the caller knows no paths
			b.WriteString(f.Location + ": ")
		}
		b.WriteString(f.Message)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Context)) {
		if value := p.context(name, b.String()); value != "" {
			b.WriteString("\n  " + name + ": " + value)
		}
	}
	return withMaybe(b.String(), p.Maybe)
}

// context is one value of the context in words; empty if it has none or the text said so far has all of it.
func (p *Problem) context(name, said string) string {
	if name == "field_name" || name == "validation_error" { // Errors has them
		return ""
	}
	list, ok := p.Context[name].([]any)
	if !ok {
		list = []any{p.Context[name]}
	}
	var words []string
	news := false
	for _, value := range list {
		var word string
		switch v := value.(type) {
		case string:
			word = v
		case float64:
			word = strconv.FormatFloat(v, 'f', -1, 64)
		}
		if word == "" {
			continue
		}
		words = append(words, word)
		news = news || !strings.Contains(said, word)
	}
	if !news {
		return ""
	}
	return strings.Join(words, ", ")
}

// readProblem makes a Problem of any answer that is not 2xx, also of one that is no problem+json.
func readProblem(res *http.Response) *Problem {
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // what was read of it says enough
	p := new(Problem)
	if err := json.Unmarshal(data, p); err != nil {
		p = &Problem{Detail: fmt.Sprintf("%s answered %s and nothing an orchestrator would say", res.Request.URL.Host, res.Status)}
	}
	p.Status = res.StatusCode
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		p.RetryAfter = seconds(res.Header.Get("Retry-After"))
	}
	return p
}
