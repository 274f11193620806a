package child

import (
	"bytes"
	"io"
	"os/exec"
	"testing"
)

// What the supervisor costs: BenchmarkSupervised in a control group and without one, against BenchmarkPlain, the same
// program started by the caller itself.
func BenchmarkPlain(b *testing.B) {
	for b.Loop() {
		cmd := exec.Command("true")
		cmd.Stdout = &bytes.Buffer{} // a pipe, as with a supervisor
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSupervised(b *testing.B) {
	for name, noGroup := range map[string]bool{"group": false, "plain": true} {
		b.Run(name, func(b *testing.B) {
			if _, err := Home(); err != nil && !noGroup {
				b.Skip(err)
			}
			c := Command{Path: "true", Env: env, Owner: "bench", noGroup: noGroup}
			for b.Loop() {
				p, err := Start(b.Context(), c)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, p.Output())
				if end := p.Wait(); end.ExitCode != 0 {
					b.Fatalf("outcome %+v", end)
				}
			}
		})
	}
}
