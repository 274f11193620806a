package work

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"chiffon/agentrunner/child"
)

const gpuEvery = 5 * time.Second // between two looks at the memory of the GPUs

// watchGPU notes how much GPU memory a tree holds while it runs. The function it returns, to be called once, ends the
// watch and says the most that was seen, in MiB: 0 on a host without nvidia-smi.
func watchGPU(p *child.Process) (most func() int) {
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return func() int { return 0 }
	}
	var wg sync.WaitGroup
	peak := 0
	ctx, stop := context.WithCancel(context.Background())
	wg.Go(func() {
		tick := time.NewTicker(gpuEvery)
		defer tick.Stop()
		for {
			peak = max(peak, gpuMemory(ctx, program, p.Tree()))
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() int {
		stop()
		wg.Wait()
		return peak
	}
}

// gpuMemory asks for the MiB of GPU memory that some processes hold now.
func gpuMemory(ctx context.Context, program string, pids []int) (sum int) {
	ctx, cancel := context.WithTimeout(ctx, gpuEvery)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
	text, err := cmd.Output()
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		pid, used, _ := strings.Cut(string(line), ",")
		id, idErr := strconv.Atoi(strings.TrimSpace(pid))
		mib, err := strconv.Atoi(strings.TrimSpace(used))
		if idErr == nil && err == nil && slices.Contains(pids, id) {
			sum += mib
		}
	}
	return sum
}
