// Package report tells the world how an attempt goes: its steps, its progress and its output become statuses in the
// status stream. It does not know what ends an attempt, nor anything of the task log.
package report

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"chiffon/agentrunner/work"
	"chiffon/pkg/chunk"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// TailSize is how much of the end of the output a Summary has, in bytes.
const TailSize = 256 << 10

// Config says whose attempt is reported. The zero value of a duration means its default.
type Config struct {
	Broker   sender // *broker.Client
	Task     subject.TaskID
	Agent    subject.AgentID
	Type     subject.AgentType
	Trace    message.UUID
	Request  message.UUID
	Attempt  int
	WorkType string // name of the step that work without steps is in

	// Earlier is what an earlier life had reported of the same attempt until it died, and Steps how many steps that
	// were. It is added to the Summary.
	Earlier Summary
	Steps   int

	// Gather is how long output waits for more of it. Default 100 ms.
	Gather time.Duration

	// Silence is how often there is a status at least. Default 10 s.
	Silence time.Duration

	// Patience is how long output waits for a broker that takes nothing. Then it is dropped, until the broker takes
	// something again, so that the work can go on. Default 10 s.
	Patience time.Duration

	Log *slog.Logger
}

// A Reporter is the work.Sink of one attempt. Close and then Confirm end it. Safe for concurrent use.
type Reporter struct {
	cfg    Config
	window *window
	first  chan struct{} // there is output to send, where there was none
	closed chan struct{}
	ticks  sync.WaitGroup

	mu      sync.Mutex
	named   bool // the work has said where it is, or has written something
	number  int
	name    string
	offset  int64 // in the output of the step
	percent *int
	pending []byte
	last    time.Time // of the last status
	armed   bool      // first has been told, and due has not come yet
	tail    []byte
	sum     Summary
}

// A Summary is what the end of an attempt says about its output.
type Summary struct {
	Statuses    int
	OutputBytes int64  // how much output there was
	Dropped     int64  // how much of it was not published
	Tail        []byte // its last TailSize bytes, from the beginning of a character on
}

// Start begins to report: a first status says that the attempt is running.
func Start(cfg Config) *Reporter {
	def := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	def(&cfg.Gather, 100*time.Millisecond)
	def(&cfg.Silence, 10*time.Second)
	def(&cfg.Patience, 10*time.Second)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Reporter{
		cfg: cfg, number: cfg.Steps + 1, name: cfg.WorkType, sum: cfg.Earlier, tail: cfg.Earlier.Tail,
		window: newWindow(cfg.Broker, subject.Status(cfg.Task, cfg.Agent), cfg.Patience, cfg.Log),
		first:  make(chan struct{}, 1), closed: make(chan struct{}),
	}
	r.emit(message.StatusRunning, nil, nil)
	r.ticks.Go(r.tick)
	return r
}

// Output takes what the work has written. It blocks while the broker is slow.
func (r *Reporter) Output(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.OutputBytes += int64(len(p))
	r.keep(p)
	r.gather(p)
	if len(r.pending) > 0 && !r.armed {
		r.armed = true
		select {
		case r.first <- struct{}{}:
		default: // it has not been heard yet, and will be
		}
	}
}

// gather adds to what is to be sent, and sends each full block.
func (r *Reporter) gather(p []byte) {
	for len(p) > 0 {
		n := min(len(p), chunk.Size-len(r.pending))
		r.pending = append(r.pending, p[:n]...)
		p = p[n:]
		if len(r.pending) == chunk.Size {
			r.send(message.StatusRunning, whole(r.pending), false)
		}
	}
}

// Step says where the work is. What was written before belongs to the step before.
func (r *Reporter) Step(s work.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Done && s.Number == r.number && r.named {
		r.progress(s.Percent)
		r.flush(message.StatusStepCompleted, true)
		return
	}
	if len(r.pending) > 0 {
		r.flush(message.StatusRunning, true)
	}
	if s.Number != r.number {
		r.number, r.offset = max(s.Number, 1), 0
	}
	r.name, r.named = strings.ToValidUTF8(s.Name, "\uFFFD"), true
	r.progress(s.Percent)
	word := message.StatusRunning
	if s.Done {
		word = message.StatusStepCompleted
	}
	r.emit(word, nil, nil)
}

// progress never goes back, and is complete only when the end says so.
func (r *Reporter) progress(percent *int) {
	if percent == nil {
		return
	}
	p := min(max(*percent, 0), 99)
	if r.percent == nil || p > *r.percent {
		r.percent = &p
	}
}

// flush sends all that waits, and a status that says word in any case. final: the step has no more output.
func (r *Reporter) flush(word string, final bool) {
	if len(r.pending) == 0 {
		r.emit(word, nil, nil)
		return
	}
	r.send(word, len(r.pending), final)
}

// send sends the first n of the bytes that wait.
func (r *Reporter) send(word string, n int, final bool) {
	at := chunk.Range{Start: r.offset, End: r.offset + int64(n)}
	if final && n == len(r.pending) {
		at.Total = at.End
	}
	if !r.emit(word, r.pending[:n], &at) {
		r.sum.Dropped += int64(n)
	}
	r.offset += int64(n)
	r.pending = r.pending[:copy(r.pending, r.pending[n:])]
}

// emit publishes one status; false when it is lost.
func (r *Reporter) emit(word string, output []byte, at *chunk.Range) bool {
	var step *message.Step
	if r.named = r.named || len(output) > 0; r.named {
		step = &message.Step{Number: r.number, Name: r.name}
		step.Output, step.OutputEncoding = message.Text(output)
		if at != nil {
			step.OutputChunk = at.Format()
		}
	}
	m := message.New(r.cfg.Type, subject.Orchestrator, r.cfg.Trace, r.cfg.Request, message.WorkStatus{
		TaskID: r.cfg.Task, Status: word, ProgressPercent: r.percent, Step: step,
	})
	m.Custom = message.Custom{AgentID: r.cfg.Agent, Chiffon: &message.Extension{Attempt: r.cfg.Attempt}}
	data, err := m.Encode()
	if err != nil {
		r.cfg.Log.Error("status cannot be written", "error", err)
		return false
	}
	r.last = time.Now()
	if !r.window.put(data) {
		r.cfg.Log.Warn("status is lost: the broker takes nothing", "output_bytes", len(output))
		return false
	}
	r.sum.Statuses++
	return true
}

// tick sends what has waited long enough, and a sign of life when there is nothing else.
func (r *Reporter) tick() {
	timer := time.NewTimer(r.cfg.Silence)
	defer timer.Stop()
	for {
		select {
		case <-r.closed:
			return
		case <-r.first:
			timer.Reset(r.cfg.Gather)
		case <-timer.C:
			timer.Reset(r.due())
		}
	}
}

func (r *Reporter) due() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = false
	if n := whole(r.pending); n > 0 {
		r.send(message.StatusRunning, n, false)
	} else if time.Since(r.last) >= r.cfg.Silence {
		r.emit(message.StatusRunning, nil, nil)
	}
	return max(r.cfg.Silence-time.Since(r.last), time.Millisecond)
}

// Close sends what is left and says what there was. No output is taken any more.
func (r *Reporter) Close() Summary {
	close(r.closed)
	r.ticks.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) > 0 {
		r.flush(message.StatusRunning, true)
	}
	r.sum.Tail = r.tail
	if over := len(r.tail) - TailSize; over > 0 {
		r.sum.Tail = r.tail[over:]
		for len(r.sum.Tail) > 0 && !utf8.RuneStart(r.sum.Tail[0]) && len(r.sum.Tail) > TailSize-utf8.UTFMax {
			r.sum.Tail = r.sum.Tail[1:]
		}
	}
	return r.sum
}

// Confirm waits until every status is stored; it returns how many are not known to be when ctx ends before. It comes
// after Close, once.
func (r *Reporter) Confirm(ctx context.Context) (missing int) { return r.window.wait(ctx) }

// keep remembers the end of the output.
func (r *Reporter) keep(p []byte) {
	if len(p) > TailSize {
		p = p[len(p)-TailSize:]
	}
	if r.tail = append(r.tail, p...); len(r.tail) > 2*TailSize {
		r.tail = r.tail[:copy(r.tail, r.tail[len(r.tail)-TailSize:])]
	}
}

// whole is how many bytes of p end with a whole character. What is no text is whole as it is.
func whole(p []byte) int {
	for i := len(p) - 1; i >= 0 && i >= len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				return i
			}
			break
		}
	}
	return len(p)
}
