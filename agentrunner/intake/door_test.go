package intake_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A door lets a gate work type through.
type door struct {
	w    *world
	path string
}

func (w *world) door() door { return door{w, filepath.Join(w.TempDir(), "door")} }

func (d door) params() string {
	text, err := json.Marshal(map[string]string{"file": d.path})
	if err != nil {
		d.w.Fatal(err)
	}
	return string(text)
}

func (d door) open() {
	d.w.Helper()
	if err := os.WriteFile(d.path+".go", nil, 0o600); err != nil {
		d.w.Fatal(err)
	}
}

// begun waits until the work runs n times, and returns the process ids.
func (d door) begun(n int) []byte {
	d.w.Helper()
	ctx, cancel := context.WithTimeout(d.w.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(d.path + ".up")
		lines := 0
		for _, b := range text {
			if b == '\n' {
				lines++
			}
		}
		if err == nil && lines >= n {
			return text
		}
		select {
		case <-ctx.Done():
			d.w.Fatalf("the work did not begin %d times", n)
		case <-tick.C:
		}
	}
}

// runs reports whether one of the processes that a door has seen still runs. Its command line tells it from another
// of the same number.
func (d door) runs(seen []byte) bool {
	for pid := range strings.FieldsSeq(string(seen)) {
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err == nil && strings.Contains(string(line), d.path) {
			return true
		}
	}
	return false
}

// gone fails the test unless every process that a door has seen is gone.
func (d door) gone(seen []byte) {
	d.w.Helper()
	if d.runs(seen) {
		d.w.Errorf("one of the processes %q of the work still runs", seen)
	}
}
