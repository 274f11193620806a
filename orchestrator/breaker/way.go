package breaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
)

// A Way is the orchestrator's own way to the broker, behind a breaker: who wants to ask the broker looks here first,
// so that nobody hangs on one that does not answer. Safe for concurrent use; Run asks for signs of life.
type Way struct {
	client  *broker.Client
	log     *slog.Logger
	breaker *gobreaker.CircuitBreaker[struct{}]

	mu     sync.Mutex
	since  time.Time     // it was last seen whole, monotonic
	reason error         // the latest failure
	lost   chan struct{} // closed while the breaker is not
}

// A way is asked every wayEvery; no answer in wayTime is a failure, wayFailures in a row open the breaker. So it is
// known after 5 s at the latest that the broker does not answer, and a second after it does that it does.
const (
	wayEvery    = time.Second
	wayTime     = 2 * time.Second
	wayFailures = 2
)

// An OutError says that the broker cannot be asked now.
type OutError struct {
	Since  time.Duration // since it was last known to answer
	Reason error
	Again  time.Duration // when it is worth another try
}

func (e *OutError) Error() string {
	return fmt.Sprintf("the broker has not answered for %s: %v", e.Since.Round(time.Second), e.Reason)
}

func (e *OutError) Unwrap() error { return e.Reason }

var errNoConnection = errors.New("there is no connection to it")

// NewWay returns a way that is taken to be whole until Run finds otherwise.
func NewWay(client *broker.Client, log *slog.Logger) *Way {
	w := &Way{client: client, log: log, since: time.Now(), lost: make(chan struct{})}
	w.breaker = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Timeout:       wayEvery,
		ReadyToTrip:   func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= wayFailures },
		OnStateChange: func(_ string, from, to gobreaker.State) { w.turned(from, to) },
	})
	return w
}

// turned lets go, when the way is lost, of all who wait for the broker.
func (w *Way) turned(from, to gobreaker.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case from == gobreaker.StateClosed:
		close(w.lost)
		w.log.Error("broker does not answer: what needs it is refused", "error", w.reason)
	case to == gobreaker.StateClosed:
		w.lost = make(chan struct{})
		w.log.Info("broker answers again")
	}
}

// Run asks the broker for something cheap again and again, until ctx ends.
func (w *Way) Run(ctx context.Context) error {
	tick := time.NewTicker(wayEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			_, _ = w.breaker.Execute(func() (struct{}, error) { return struct{}{}, w.ask(ctx) }) // Check tells
		}
	}
}

func (w *Way) ask(ctx context.Context) error {
	err := errNoConnection
	if w.client.Connected() {
		short, cancel := context.WithTimeout(ctx, wayTime)
		defer cancel()
		_, err = w.client.StreamInfo(short, subject.TasksStream)
	}
	if ctx.Err() != nil {
		return nil // this process ends, not the broker
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason = err; err == nil {
		w.since = time.Now()
	}
	return err
}

// Check says whether the broker may be asked: nil, or an *OutError.
func (w *Way) Check() error {
	open := w.breaker.State() != gobreaker.StateClosed
	w.mu.Lock()
	defer w.mu.Unlock()
	reason := w.reason
	switch {
	case !w.client.Connected():
		reason = errNoConnection
	case !open:
		return nil
	case reason == nil:
		reason = errNoConnection // it has just come back, and is about to be asked
	}
	return &OutError{Since: time.Since(w.since), Reason: reason, Again: wayEvery}
}

// Along returns a context for asking the broker: it ends as if its deadline had come when the way is lost. stop ends it
// and frees what it holds.
func (w *Way) Along(ctx context.Context) (along context.Context, stop func()) {
	w.mu.Lock()
	lost := w.lost
	w.mu.Unlock()
	h := &hurried{Context: ctx, over: make(chan struct{})}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-lost:
			h.end(context.DeadlineExceeded)
		case <-ctx.Done():
			h.end(ctx.Err())
		case <-done:
			h.end(context.Canceled)
		}
	})
	return h, sync.OnceFunc(func() {
		close(done)
		wg.Wait()
	})
}

// A hurried context's deadline may come at any time. Its Done is a channel of its own, by which package context knows
// that it must not look past it.
type hurried struct {
	context.Context
	over chan struct{}
	err  error // set before over is closed
}

func (h *hurried) end(err error) {
	h.err = err
	close(h.over)
}

func (h *hurried) Done() <-chan struct{} { return h.over }

func (h *hurried) Err() error {
	select {
	case <-h.over:
		return h.err
	default:
		return nil
	}
}

// RetryAfter is the error's wait in whole seconds, as HTTP has it.
func (e *OutError) RetryAfter() int { return max(1, int(math.Ceil(e.Again.Seconds()))) }
