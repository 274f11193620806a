// Package host tells what the machine has that work runs on: processors, memory, GPUs. It knows nothing of work.
package host

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

// Room is what a host has for work, in MiB.
type Room struct {
	MemoryMB   int // 0 when the system does not say
	VRAMMB     int // of all GPUs together; 0 without nvidia-smi
	VRAMFreeMB int
}

// Now tells what there is. With GPUs it takes as long as nvidia-smi does, at most 5 s.
func Now(ctx context.Context) Room {
	var r Room
	r.MemoryMB, _ = memory()
	r.VRAMMB, r.VRAMFreeMB = vram(ctx)
	return r
}

// A Host tells how a machine is, as far as it says so. Not for concurrent use.
type Host struct {
	busy, all uint64 // processor time until the last look, in ticks
	vram      int    // MiB
}

// New looks at what does not change.
func New(ctx context.Context) *Host {
	h := &Host{}
	h.busy, h.all = ticks()
	h.vram, _ = vram(ctx)
	return h
}

// Look tells the load since the last look, and the memory now.
func (h *Host) Look() message.HostResources {
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

// vram asks nvidia-smi for the memory of all GPUs together, and how much of it is free, in MiB; 0 where there is no such
// program.
func vram(ctx context.Context) (total, free int) {
	program, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return 0, 0
	}
	return askGPUs(ctx, program)
}

func askGPUs(ctx context.Context, program string) (total, free int) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, "--query-gpu=memory.total,memory.free", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		all, rest, _ := strings.Cut(line, ",")
		a, allErr := strconv.Atoi(strings.TrimSpace(all))
		f, err := strconv.Atoi(strings.TrimSpace(rest))
		if allErr == nil && err == nil {
			total, free = total+a, free+f
		}
	}
	return total, free
}
