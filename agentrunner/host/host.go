package presence

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"chiffon/pkg/message"
)

// A host tells what this machine has, as far as it says so.
type host struct {
	busy, all uint64 // processor time until the last look, in ticks
	vram      int    // MiB
}

// begin looks at what does not change.
func (h *host) begin(ctx context.Context) {
	h.busy, h.all = ticks()
	h.vram = vram(ctx)
}

// look tells the load since the last look, and the memory now.
func (h *host) look() message.HostResources {
	r := message.HostResources{CPUs: runtime.NumCPU(), GPUVRAMMB: h.vram}
	r.MemoryMB, r.MemoryFreeMB = memory()
	busy, all := ticks()
	if all > h.all && busy >= h.busy {
		percent := 100 * float64(busy-h.busy) / float64(all-h.all)
		r.CPUPercent = float64(int(percent*10)) / 10
	}
	h.busy, h.all = busy, all
	return r
}

// ticks reads how long the processors have worked, and how long they have been there.
func ticks() (busy, all uint64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(line))
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 64)
		if i == 0 || i > 8 || err != nil { // the name; guest time, which user time holds already
			continue
		}
		all += n
		if i != 4 && i != 5 { // idle, waiting for disks
			busy += n
		}
	}
	return busy, all
}

// memory reads how much there is and how much could be had, in MiB.
func memory() (total, free int) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if len(f) == 0 {
			continue
		}
		kib, err := strconv.Atoi(f[0])
		if err != nil {
			continue
		}
		switch name {
		case "MemTotal":
			total = kib >> 10
		case "MemAvailable":
			free = kib >> 10
		}
	}
	return total, free
}

// vram asks nvidia-smi for the memory of all GPUs together, in MiB; 0 where there is no such program.
func vram(ctx context.Context) (sum int) {
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, "--query-gpu=memory.total", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if n, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			sum += n
		}
	}
	return sum
}
