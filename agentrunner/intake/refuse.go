package intake

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/agentrunner/host"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// longestAway is how long a request stays away at most that was refused time and again. The same message may suit
// another agent, so it is not long.
const longestAway = 8 * time.Second

// A refusal is a request that was handed back before its start: no attempt was made, and the log has no entry of it.
type refusal struct {
	message.Refusal
	request uint64 // where that stands
	at      time.Time
	away    time.Duration
}

// lacking says what this host has not got for a request. What a request may need of memory is its most, not what it will
// use: so it is held against what there is and what running work has been promised, not against what happens to be free.
// Memory of GPUs must be free as well, for nobody gives it back under pressure.
func (i *Intake) lacking(ctx context.Context, h message.Hints) *fault.Fault {
	if i.cfg.Room == nil || h.MaxMemoryMB == 0 && h.GPUVRAMMB == 0 {
		return nil
	}
	memory, vram := 0, 0
	for _, s := range i.held() { // also what outlived its runner
		memory += s.memory
		vram += s.vram
	}
	return lacks(h, i.cfg.Room(ctx), memory, vram)
}

// lacks is lacking for a host that has room and has promised so much of it, in MiB. What cannot be measured, except for
// GPUs, is taken to be there.
func lacks(h message.Hints, room host.Room, memory, vram int) *fault.Fault {
	if left := max(room.MemoryMB-memory, 0); room.MemoryMB > 0 && h.MaxMemoryMB > left {
		return short("max_memory_mb", "memory", left, room.MemoryMB, h.MaxMemoryMB)
	}
	if left := max(min(room.VRAMMB-vram, room.VRAMFreeMB), 0); h.GPUVRAMMB > left {
		return short("gpu_vram_mb", "GPU memory", left, room.VRAMMB, h.GPUVRAMMB)
	}
	return nil
}

func short(limit, what string, left, all, need int) *fault.Fault {
	return fault.New(fault.ResourceLimitExceeded, "%s: %d MiB of %s are wanted, and of the %d MiB of this host %d can be had now", limit, need, what, all, left).
		With("limit_name", limit).With("available", left).With("required", need)
}

// refuse hands a request back for a while, and has the orchestrator told.
func (i *Intake) refuse(m jetstream.Msg, e tasklog.Entry, flt *fault.Fault) {
	text := strings.ToValidUTF8(flt.Message[:min(len(flt.Message), message.MaxDetail)], "")
	r := refusal{
		Refusal: message.Refusal{TaskID: e.Subject.Task, Code: flt.Code, Message: text}, request: e.Seq, at: time.Now(), away: later,
	}
	longest := max(min(longestAway, i.lease()/2), later) // so that it is shown all the time
	i.mu.Lock()
	before, again := i.refused[r.TaskID]
	if again && before.request == r.request {
		r.away = min(2*before.away, longest)
	}
	listed := again || len(i.refused) < message.MaxSlots // a heartbeat holds no more
	if listed {
		i.refused[r.TaskID] = r
	}
	i.mu.Unlock()
	if err := m.NakWithDelay(r.away); err != nil {
		i.cfg.Log.Debug("request is not answered", "subject", m.Subject(), "error", err)
	}
	if listed && (!again || before.request != r.request || before.Code != r.Code) {
		i.cfg.Log.Info("request is handed back", "task_id", r.TaskID, "error_code", int(r.Code), "error", text)
		i.cfg.Changed()
	}
}

// Refused lists the requests that were handed back before their start, in the last lease.
func (i *Intake) Refused() (list []message.Refusal) {
	lease := i.lease()
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.refused, func(_ subject.TaskID, r refusal) bool { return time.Since(r.at) > lease })
	for _, r := range i.refused {
		list = append(list, r.Refusal)
	}
	slices.SortFunc(list, func(a, b message.Refusal) int { return strings.Compare(string(a.TaskID), string(b.TaskID)) })
	return list
}
