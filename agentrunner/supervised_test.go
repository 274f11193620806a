package main

import (
	"io"
	"testing"

	"chiffon/agentrunner/child"
)

// What an attempt pays for its supervisor when that is this whole program, as in life. BenchmarkPlain of package child
// is the floor.
func BenchmarkSupervised(b *testing.B) {
	for b.Loop() {
		p, err := child.Start(b.Context(), child.Command{Path: "true", Env: []string{"PATH=/usr/bin:/bin"}, Owner: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, p.Output())
		if end := p.Wait(); end.ExitCode != 0 {
			b.Fatalf("outcome %+v", end)
		}
	}
}
