package dispatch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode"

	"chiffon/orchestrator/registry"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// extension is the path of what a request says where the protocol has no field.
const extension = "x_custom_fields.chiffon."

// Limits of what a submitter may write into those fields.
const (
	maxLabels = 64
	maxWord   = 255 // bytes of a label's key or value, or of a capability
)

// wanted is what a request may say of who does it, where and how urgently; what only entries behind it may say is left
// out. The error is a *fault.Fault.
func wanted(x *message.Extension) (message.Extension, error) {
	if x == nil {
		x = &message.Extension{}
	}
	w := *x
	w.Digest, w.Hold, w.Attempt, w.Attempts, w.RetryAt = "", nil, 0, 0, nil
	w.Silent, w.Gone, w.Late, w.Begun, w.Cancel, w.StatusCount, w.Host = false, false, false, false, nil, 0, ""
	w.Outcome, w.ExitCode, w.ErrorCode = "", nil, 0
	priority, err := subject.ParsePriority(w.Priority)
	if err != nil {
		return w, fault.Invalid(extension+"priority", "%v", err)
	}
	w.Priority = string(priority)
	for name, labels := range map[string]*map[string]string{"labels": &w.Labels, "on": &w.On} {
		if flt := checkLabels(extension+name, *labels); flt != nil {
			return w, flt
		}
		if len(*labels) == 0 {
			*labels = nil
		}
	}
	if len(w.Needs) > maxLabels {
		return w, fault.Invalid(extension+"needs", "has %d capabilities, more than the %d allowed", len(w.Needs), maxLabels)
	}
	if slices.ContainsFunc(w.Needs, func(n string) bool { return n == "" || !plain(n) }) {
		return w, fault.Invalid(extension+"needs", "a capability has 1 to %d bytes and no control characters", maxWord)
	}
	if len(w.Needs) == 0 {
		w.Needs = nil
	}
	return w, nil
}

func checkLabels(field string, labels map[string]string) *fault.Fault {
	if len(labels) > maxLabels {
		return fault.Invalid(field, "has %d labels, more than the %d allowed", len(labels), maxLabels)
	}
	for k, v := range labels {
		if k == "" || strings.Contains(k, "=") || !plain(k) || !plain(v) {
			return fault.Invalid(field, "a label is key=value: a key without =, neither with control characters nor longer than %d bytes", maxWord)
		}
	}
	return nil
}

func plain(s string) bool { return len(s) <= maxWord && strings.IndexFunc(s, unicode.IsControl) < 0 }

// judge holds a request against what the known agents offer: 5006 when none of them does such work, 5003 when none
// takes the parameters.
func judge(r message.WorkRequest, known []registry.Agent) *fault.Fault {
	var supported []string
	var wrong *fault.Fault
	told, offered, taken := len(known) > 0, false, false
	for _, a := range known {
		told = told && a.WorkTypes != nil // else it is about to say what it offers
		for _, o := range a.WorkTypes {
			supported = append(supported, o.Name)
		}
		if !a.Offers(r.WorkType) {
			continue
		}
		offered = true
		if flt := a.Check(r.WorkType, r.Parameters); flt != nil {
			wrong = flt
		} else {
			taken = true
		}
	}
	switch {
	case told && !offered:
		slices.Sort(supported)
		return fault.Unsupported(r.WorkType, slices.Compact(supported))
	case wrong != nil && !taken:
		return wrong
	}
	return nil
}

// digest is one value for all that an order asks for, so that a repetition is told from another order.
func digest(m message.Message[message.WorkRequest], x message.Extension, queue time.Duration) string {
	var parameters any
	dec := json.NewDecoder(bytes.NewReader(m.Payload.Parameters))
	dec.UseNumber() // two large numbers may be one float64
	if err := dec.Decode(&parameters); err != nil {
		parameters = string(m.Payload.Parameters)
	}
	h := message.Hints{}
	if m.Payload.Hints != nil {
		h = *m.Payload.Hints
	}
	data, err := json.Marshal([]any{
		m.ToAgent, m.Payload.WorkType, parameters, h.MaxDurationSeconds, h.MaxMemoryMB, h.GPUVRAMMB,
		x.Name, x.Description, x.Priority, x.Agent, x.On, x.Needs, x.Labels, x.Dependencies, x.ParentTaskID, x.RetryOf,
		queue, x.Expires,
	})
	if err != nil {
		panic(err) // plain values only
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
