package near_test

import (
	"testing"

	"chiffon/pkg/near"
)

func TestWord(t *testing.T) {
	t.Parallel()
	known := []string{"steps", "stdin", "description", "env"}
	for word, want := range map[string]string{
		"step": "steps", "setps": "steps", "stdn": "stdin", "descripton": "description", "enf": "env", "steps": "steps",
		"command": "", "": "", "x": "",
	} {
		if got := near.Word(word, known, 2); got != want {
			t.Errorf("Word(%q) = %q, want %q", word, got, want)
		}
	}
	if got := near.Word("steq", []string{"stem", "steps"}, 2); got != "stem" {
		t.Errorf("the first of the nearest is %q", got)
	}
	if got := near.Word("env", known, 0); got != "env" {
		t.Errorf("Word with limit 0 = %q", got)
	}
}
