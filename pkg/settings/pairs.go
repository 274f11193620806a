package settings

import (
	"fmt"
	"strings"
)

// Pairs is a list k=v,k=v.
type Pairs map[string]string

// Decode reads the list; white space around keys and values is ignored, a key twice is a mistake.
func (p *Pairs) Decode(value string) error {
	out := Pairs{}
	for pair := range strings.SplitSeq(value, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, val, ok := strings.Cut(pair, "=")
		key = strings.TrimSpace(key)
		if _, twice := out[key]; twice {
			return fmt.Errorf("the key %q is there twice", key)
		}
		if !ok || key == "" {
			return fmt.Errorf("%q must be key=value", pair)
		}
		out[key] = strings.TrimSpace(val)
	}
	*p = out
	return nil
}
