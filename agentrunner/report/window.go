package report

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"chiffon/pkg/broker"
)

const (
	width      = 16                     // statuses under way at once, so at most 16 blocks are kept in memory
	answerTime = 5 * time.Second        // without an answer for so long, a status is sent again
	pause      = 250 * time.Millisecond // between two tries
)

// A sender puts a message into a stream without waiting.
type sender interface {
	Send(subj string, data []byte) (broker.Receipt, error)
}

// A window sends statuses in order, several at once, each again until the stream has it. Readers drop repetitions by
// message_id.
type window struct {
	to       sender
	subject  string
	patience time.Duration
	log      *slog.Logger

	room    chan struct{} // holds one token for each status under way
	queue   chan sent
	stop    context.CancelFunc
	done    chan struct{}
	stalled atomic.Bool // the broker has not taken anything for patience: nobody waits for it until it does
}

type sent struct {
	data    []byte
	receipt broker.Receipt
	err     error
}

func newWindow(to sender, subj string, patience time.Duration, log *slog.Logger) *window {
	ctx, stop := context.WithCancel(context.Background()) // its owner ends it by wait
	w := &window{
		to: to, subject: subj, patience: patience, log: log, stop: stop,
		room: make(chan struct{}, width), queue: make(chan sent, width), done: make(chan struct{}),
	}
	go func() {
		defer close(w.done)
		for s := range w.queue {
			if !w.confirm(ctx, s) {
				return
			}
			w.stalled.Store(false)
			<-w.room
		}
	}()
	return w
}

// put sends one status. While the window is full it blocks, which is how a slow broker slows the work down; once the
// broker has taken nothing for patience it answers false, and the status is lost.
func (w *window) put(data []byte) bool {
	select {
	case w.room <- struct{}{}:
	default:
		if w.stalled.Load() {
			return false
		}
		t := time.NewTimer(w.patience)
		defer t.Stop()
		select {
		case w.room <- struct{}{}:
		case <-t.C:
			w.stalled.Store(true)
			return false
		}
	}
	s := sent{data: data}
	s.receipt, s.err = w.to.Send(w.subject, data)
	w.queue <- s // never blocks: the queue is as long as there is room
	return true
}

// confirm waits until a status is stored, and sends it again as often as that takes. False when ctx ends before.
func (w *window) confirm(ctx context.Context, s sent) bool {
	for again := false; ; again = true {
		if s.err == nil {
			wait, cancel := context.WithTimeout(ctx, answerTime)
			s.err = s.receipt.Wait(wait)
			cancel()
		}
		if s.err == nil {
			return true
		}
		w.log.Debug("status is sent again", "subject", w.subject, "error", s.err)
		if again { // the first time at once: what broke the one before may be over
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		if ctx.Err() != nil {
			return false
		}
		s.receipt, s.err = w.to.Send(w.subject, s.data)
	}
}

// wait returns how many statuses are not known to be stored: 0, unless ctx ended before. Nothing may be put any more.
func (w *window) wait(ctx context.Context) int {
	close(w.queue)
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	w.stop()
	<-w.done
	return len(w.room)
}
