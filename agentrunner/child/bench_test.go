package child

import (
	"bytes"
	"io"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// What the supervisor costs: BenchmarkSupervised in a control group and without one, against BenchmarkPlain, the same
// program started by the caller itself.
func BenchmarkPlain(b *testing.B) {
	defer processorTime(b)()
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
			defer processorTime(b)()
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

// processorTime reports what an attempt costs this process and its children, which other load changes less than the
// time it takes.
func processorTime(b *testing.B) func() {
	used := func() (ns int64) {
		for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
			var u unix.Rusage
			unix.Getrusage(who, &u)
			ns += u.Utime.Nano() + u.Stime.Nano()
		}
		return ns
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N)/1e6, "cpu-ms/op") }
}
