package intake

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"chiffon/agentrunner/spool"
	"chiffon/agentrunner/work"
	"chiffon/pkg/subject"
)

// A slot holds one attempt, from before its started entry until the log has its outcome.
type slot struct {
	task      subject.TaskID
	attempt   int
	boot      uint64
	workType  string
	filled    time.Time
	recovered bool   // of an earlier life
	started   uint64 // where its started entry is stored, 0 before; guarded by Intake.mu
	memory    int    // MiB that its request may need, 0 when it does not say
	vram      int    // likewise of GPUs
	look      chan struct{}
	halt      chan *work.Stop // holds one: how this runner wants the work stopped
	killAt    time.Time       // when what was wanted until now has it killed, zero while nobody said; guarded by Intake.mu
	signal    string          // what was wanted last to come before that; guarded by Intake.mu
	log       *slog.Logger

	record spool.Record // of the goroutine that has the attempt
	lease  atomic.Pointer[lease]
	stop   stopped

	disk   sync.Mutex
	unkept *spool.Record // an outcome that could not be written; guarded by disk
}

func (i *Intake) newSlot(r spool.Record) *slot {
	s := &slot{
		task: r.Task, attempt: r.Attempt, boot: r.Boot, workType: r.WorkType, filled: time.Now(),
		memory: r.MemoryMB, vram: r.VRAMMB, look: make(chan struct{}, 1), halt: make(chan *work.Stop, 1), record: r,
		log: i.cfg.Log.With("task_id", r.Task, "trace_id", r.Trace, "attempt", r.Attempt),
	}
	s.lease.Store(&lease{from: s.filled, length: i.lease()})
	return s
}

// fill gives the request at seq the slot of its task. The answer says what to do with the message when it may not
// have it.
func (i *Intake) fill(s *slot, seq uint64, concurrency int) reply {
	i.mu.Lock()
	defer i.mu.Unlock()
	if have := i.slots[s.task]; have != nil {
		if seq < have.started {
			return replyAck
		}
		return replyLater // also the request of a next attempt, while the last one is not wholly told
	}
	all, same := 0, 0
	for _, have := range i.slots {
		if have.recovered {
			continue
		}
		all++
		if have.workType == s.workType {
			same++
		}
	}
	switch {
	case i.barred() || all >= i.cfg.Slots:
		return replyBack
	case concurrency > 0 && same >= concurrency:
		return replyLater
	}
	i.slots[s.task] = s
	delete(i.refused, s.task)
	return replyTaken
}

func (i *Intake) empty(s *slot) {
	i.mu.Lock()
	delete(i.slots, s.task)
	i.mu.Unlock()
	i.wake()
}

func (i *Intake) markStarted(s *slot) {
	i.mu.Lock()
	s.started = s.record.Started
	i.mu.Unlock()
}

func (s *slot) lookNow() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}
