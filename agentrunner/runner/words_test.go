package runner

import (
	"strings"
	"testing"
)

func TestLabelsAndCapabilitiesAreFitToBeTold(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]Config{
		"AGENTRUNNER_LABELS":       {Labels: map[string]string{"a=b": "c"}},
		"AGENTRUNNER_CAPABILITIES": {Capabilities: []string{strings.Repeat("x", 300)}},
	} {
		c.Host = "nas"
		if err := c.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("complete() = %v, want %s named", err, want)
		}
	}
}
