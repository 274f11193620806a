package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// said waits until a task's statuses hold an output, and returns them all and their output.
func (w *world) said(id subject.TaskID, want string) (count int, output string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	seen := map[message.UUID]bool{}
	for m, err := range w.Tail(ctx, subject.StatusStream, 1) {
		if err != nil {
			w.Fatal(err)
		}
		s, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			w.Fatal(err)
		}
		if s.Payload.TaskID != id || seen[s.MessageID] {
			continue
		}
		seen[s.MessageID] = true
		if s.Payload.Step != nil {
			output += s.Payload.Step.Output
		}
		if strings.HasSuffix(output, want) {
			return len(seen), output
		}
	}
	w.Fatalf("statuses hold %d bytes of output, want %q at their end", len(output), want)
	return 0, ""
}

// The output of work that outlives its runner is told as the output of any other: what came before the runner died and
// what came after stand in the statuses in order, and the end counts both.
func TestOutputAcrossARestart(t *testing.T) {
	t.Parallel()
	const kept = 256 << 10
	for name, test := range map[string]struct{ more, rest string }{
		"little": {"", "done\n"},
		"more than is kept": {"head -c 600000 /dev/zero | tr '\\0' x; ",
			fmt.Sprintf("… %d bytes lost while the runner was away\n%sdone\n", 600_005-kept, strings.Repeat("x", kept-5))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			state := w.state(map[string]string{"once": `
attempts: 1
parameters: {type: object, required: [file], properties: {file: {type: string}}}
command: [{script: true}, {param: file}]
script: |
  #!/bin/sh
  echo hello
  while ! test -e "$1.go"; do sleep 0.02; done
  ` + test.more + `echo done
  touch "$1.done"
`})
			door := filepath.Join(t.TempDir(), "door")
			first := w.run(state)
			id := w.submit("once", door)
			w.said(id, "hello\n")
			first.signal(syscall.SIGKILL)
			first.exits()
			w.write(door+".go", "")
			w.appears(door + ".done")
			w.run(state)
			end := w.entry(id, tasklog.Succeeded)
			count, output := w.said(id, "done\n")
			if want := "hello\n" + test.rest; output != want {
				t.Errorf("statuses hold %d bytes %.100q, want %d bytes %.100q", len(output), output, len(want), want)
			}
			bytes := int64(len(output))
			if test.more != "" {
				bytes += 600_005 - kept
			}
			if x := end.Message.Custom; x.Chiffon.StatusCount != count || x.OutputBytes != bytes {
				t.Errorf("end says %d statuses and %d bytes, want %d and %d", x.Chiffon.StatusCount, x.OutputBytes, count, bytes)
			}
			if r := end.Message.Result.Output; test.more == "" && r != "hello\ndone\n" || !strings.HasSuffix(r, "xdone\n") && test.more != "" {
				t.Errorf("result has the output %.100q", r)
			}
		})
	}
}
