package message

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Limits of a Heartbeat. An orchestrator keeps what a heartbeat says for as long as it knows the agent, and shows it to people.
const (
	MaxWord        = 255  // bytes of a capability, of a label's key or value, and of each word about the program and its host
	MaxLabels      = 64   // and as many capabilities
	MaxVersions    = 64   // of the protocol
	MaxSlots       = 1024 // and as many attempts held
	MaxOffers      = 256
	MaxDescription = 4000     // bytes of an Offer's
	MaxAttempts    = 1000     // of an Offer
	MaxSchema      = 64 << 10 // bytes of an Offer's Parameters
	MaxDetail      = 500      // bytes
)

// offerName is the rule for names of work types, that of agentrunner's files too.
var offerName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

var states = []string{StateReady, StateDraining, StateBroken, StateStopped}

func (h *Heartbeat) check() error {
	switch {
	case h.Slots < 0 || h.Slots > MaxSlots:
		return wrongf("slots", "must be 0 to %d, not %d", MaxSlots, h.Slots)
	case h.State != "" && !slices.Contains(states, h.State):
		return wrongf("state", "must be ready, draining, broken or stopped, not %.32q", h.State)
	case len(h.Detail) > MaxDetail:
		return wrongf("detail", "has %d bytes, more than the %d allowed", len(h.Detail), MaxDetail)
	case len(h.Running) > MaxSlots:
		return wrongf("running", "has %d entries, more than the %d allowed", len(h.Running), MaxSlots)
	case len(h.Refused) > MaxSlots:
		return wrongf("refused", "has %d entries, more than the %d allowed", len(h.Refused), MaxSlots)
	case len(h.WorkTypes) > MaxOffers:
		return wrongf("work_types", "has %d entries, more than the %d allowed", len(h.WorkTypes), MaxOffers)
	}
	for _, w := range [...]struct{ field, text string }{
		{"version", h.Version}, {"host", h.Host}, {"instance", h.Instance}, {"work_digest", h.WorkDigest},
	} {
		if err := checkWord(w.field, w.text); err != nil {
			return err
		}
	}
	if err := checkWords("protocol_versions", h.ProtocolVersions, MaxVersions); err != nil {
		return err
	}
	if err := checkWords("capabilities", h.Capabilities, MaxLabels); err != nil {
		return err
	}
	return checkLabels("labels", h.Labels)
}

func (r *Running) check() error {
	if r.Attempt < 1 {
		return wrongf("attempt", "must be 1 or more, not %d", r.Attempt)
	}
	return nil
}

func (r *Refusal) check() error {
	switch {
	case !r.Code.Valid():
		return wrongf("error_code", "must be 5001 to 5999, not %d", r.Code)
	case len(r.Message) > MaxDetail:
		return wrongf("error_message", "has %d bytes, more than the %d allowed", len(r.Message), MaxDetail)
	}
	return nil
}

func (o *Offer) check() error {
	switch {
	case !offerName.MatchString(o.Name):
		return wrongf("name", "%.64q is no name of a work type: 1 to 63 of a-z 0-9 _ -, beginning with a letter", o.Name)
	case len(o.Description) > MaxDescription:
		return wrongf("description", "has %d bytes, more than the %d allowed", len(o.Description), MaxDescription)
	case o.Attempts < 1 || o.Attempts > MaxAttempts:
		return wrongf("attempts", "must be 1 to %d, not %d", MaxAttempts, o.Attempts)
	case len(o.Parameters) > MaxSchema:
		return wrongf("parameters", "has %d bytes, more than the %d allowed", len(o.Parameters), MaxSchema)
	}
	return nil
}

// checkWord judges a word that may be empty. The error never has the word in it: it may be long, and play with terminals.
func checkWord(field, text string) error {
	switch {
	case len(text) > MaxWord:
		return wrongf(field, "has %d bytes, more than the %d allowed", len(text), MaxWord)
	case strings.ContainsFunc(text, unicode.IsControl):
		return wrongf(field, "has a control character in it")
	}
	return nil
}

func checkWords(field string, words []string, most int) error {
	if len(words) > most {
		return wrongf(field, "has %d entries, more than the %d allowed", len(words), most)
	}
	for i, w := range words {
		entry := fmt.Sprintf("%s[%d]", field, i)
		if w == "" {
			return wrongf(entry, "is empty")
		}
		if err := checkWord(entry, w); err != nil {
			return err
		}
	}
	return nil
}

func checkLabels(field string, labels map[string]string) error {
	if len(labels) > MaxLabels {
		return wrongf(field, "has %d labels, more than the %d allowed", len(labels), MaxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k == "" || strings.Contains(k, "=") || checkWord(field, k) != nil || checkWord(field, labels[k]) != nil {
			return wrongf(field, "a label is key=value: a key without =, neither with control characters nor longer than %d bytes", MaxWord)
		}
	}
	return nil
}
