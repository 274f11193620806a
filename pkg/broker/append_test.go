package broker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

var zeroTime time.Time

// A record is what Append has answered, by entry.
type record struct {
	mu      sync.Mutex
	stored  map[string]uint64
	refused map[string]bool
}

func (r *record) note(d tasklog.Draft, seq uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.stored[d.ID] = seq
	case errors.Is(err, broker.ErrRefused):
		r.refused[d.ID] = true
	}
}

// allowed lists the entries that a writer may append to a state.
func (w writer) allowed(id subject.TaskID, s tasklog.State) (list []tasklog.Draft, err error) {
	for _, k := range tasklog.Kinds {
		if k == tasklog.Held {
			continue
		}
		for _, silent := range []bool{false, true} {
			d, err := w.draft(id, k, message.Extension{Attempts: 3, Silent: silent && k == tasklog.AttemptFailed}, s)
			if err != nil {
				return nil, err
			}
			if tasklog.Judge(s, tasklog.Read(d.Subject, d.Header(), d.Data, s.TailSeq+1, zeroTime)) == nil {
				list = append(list, d)
			}
		}
	}
	return list, nil
}

// Orchestrators and agents race on one task by the rules, while others put entries there to which they have no right,
// with and without an expectation. Whatever happens: one end, and each answer of Append is true.
func TestManyWritersOneEnd(t *testing.T) {
	t.Parallel()
	s, c := listening(t)
	clients := []*broker.Client{c}
	for range 4 {
		clients = append(clients, natstest.Connect(t, broker.Config{URL: s.URL()}))
	}
	nc := raw(t, s)
	rounds := 15
	if testing.Short() {
		rounds = 5
	}
	ends := map[tasklog.Kind]int{}
	for round := range rounds {
		id := newTask()
		answers := record{stored: map[string]uint64{}, refused: map[string]bool{}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var over atomic.Bool
		var wg sync.WaitGroup
		// honest reads, judges and appends, until the task has ended.
		honest := func(c *broker.Client, w writer, rnd *rand.Rand) {
			for !over.Load() {
				log, err := c.Task(ctx, id)
				if err != nil {
					t.Errorf("%s: %v", w.id, err)
					return
				}
				st := tasklog.Fold(log)
				if st.Phase == tasklog.PhaseEnded {
					over.Store(true)
					return
				}
				list, err := w.allowed(id, st)
				if err != nil {
					t.Error(err)
					return
				}
				if len(list) == 0 {
					continue
				}
				d := list[rnd.IntN(len(list))]
				if d.Kind.End() && rnd.IntN(4) > 0 {
					continue // else most tasks end before they have lived
				}
				seq, err := c.Append(ctx, d)
				answers.note(d, seq, err)
				if err != nil && !errors.Is(err, broker.ErrRefused) {
					t.Errorf("%s by %s: %v", d.Kind, w.id, err)
				}
			}
		}
		// forger appends what it has no right to: an end by somebody who holds nothing, and messages without headers.
		forger := func(c *broker.Client, w writer, rnd *rand.Rand) {
			for range 12 {
				log, err := c.Task(ctx, id)
				if err != nil {
					t.Errorf("%s: %v", w.id, err)
					return
				}
				kind := []tasklog.Kind{tasklog.Succeeded, tasklog.Started, tasklog.AttemptFailed, tasklog.Cancelled, tasklog.Error}[rnd.IntN(5)]
				st := tasklog.Fold(log)
				d, err := w.draft(id, kind, message.Extension{}, st)
				if err != nil {
					t.Error(err)
					return
				}
				if kind == tasklog.Started {
					d.Attempt += 5
				}
				if rnd.IntN(3) == 0 {
					if err := nc.PublishMsg(&nats.Msg{Subject: d.Subject, Header: nats.Header{tasklog.HeaderEvent: {string(kind)}}, Data: d.Data}); err != nil {
						t.Error(err)
					}
					continue
				}
				seq, err := c.Append(ctx, d)
				answers.note(d, seq, err)
			}
		}
		for i := range 5 {
			wg.Go(func() { honest(clients[i%len(clients)], boss, rand.New(rand.NewPCG(uint64(round), uint64(i)))) })
		}
		for i := range 8 {
			w := writer{fmt.Sprintf("web-%d", i), uint64(i + 1)}
			wg.Go(func() { honest(clients[i%len(clients)], w, rand.New(rand.NewPCG(uint64(round), uint64(100+i)))) })
		}
		for i := range 4 {
			w := writer{fmt.Sprintf("evil-%d", i), uint64(i + 1)}
			wg.Go(func() { forger(clients[i%len(clients)], w, rand.New(rand.NewPCG(uint64(round), uint64(200+i)))) })
		}
		wg.Wait()
		cancel()
		log, err := c.Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		ends[check(t, log, &answers)]++
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("ends: %v", ends)
}

// check holds a log against the promises and against what Append has answered; it returns the end.
func check(t *testing.T, log []tasklog.Entry, answers *record) tasklog.Kind {
	t.Helper()
	var s tasklog.State
	ends, starts := 0, 0
	for _, e := range log {
		next, err := s.Next(e)
		if err == nil && e.Kind.End() {
			ends++
		}
		if err == nil && e.Kind == tasklog.Started {
			starts++
		}
		s = next
	}
	if ends != 1 || s.Phase != tasklog.PhaseEnded || starts > max(s.Allowed, 0) {
		t.Errorf("%d ends, %d starts in a log of %d entries: %+v", ends, starts, len(log), s)
	}
	for id, seq := range answers.stored {
		if n, at := copies(log, id); n != 1 || at != seq {
			t.Errorf("entry %s was stored at %d, the log has it %d times, at %d", id, seq, n, at)
		}
	}
	for id := range answers.refused {
		if n, at := copies(log, id); n != 0 {
			t.Errorf("entry %s was refused, the log has it at %d", id, at)
		}
	}
	return s.End
}

// The broker has stored an entry, and the connection breaks before the client hears of it.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind   tasklog.Kind
		by     writer
		behind *writer // who writes behind it before the client comes back
	}{
		"of an agent":                                   {tasklog.Started, writer{"web-1", 7}, nil},
		"of an agent, cancelled meanwhile":              {tasklog.Started, writer{"web-1", 7}, &boss},
		"of an orchestrator":                            {tasklog.CancelRequested, boss, nil},
		"of an orchestrator, another has written since": {tasklog.AttemptFailed, boss, &boss},
		"of a request":                                  {tasklog.Queued, boss, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c1 := listening(t)
			p := newProxy(t, s.URL())
			far := natstest.Connect(t, broker.Config{URL: p.url(), Timeout: 300 * time.Millisecond})
			id := newTask()
			st := boss.next(t, c1, id, tasklog.Submitted, tasklog.State{})
			if c.by == boss && c.kind != tasklog.Queued {
				st = writer{"web-1", 7}.next(t, c1, id, tasklog.Started, st)
			}
			d, err := c.by.draft(id, c.kind, message.Extension{Attempts: 4, Silent: c.kind == tasklog.AttemptFailed}, st)
			if err != nil {
				t.Fatal(err)
			}
			p.silence()
			type answer struct {
				seq uint64
				err error
			}
			got := make(chan answer, 1)
			go func() {
				seq, err := far.Append(t.Context(), d)
				got <- answer{seq, err}
			}()
			var at uint64
			for m, err := range c1.Tail(t.Context(), subject.TasksStream, st.TailSeq+1) {
				if err != nil {
					t.Fatal(err)
				}
				e := m.Entry()
				if st, err = st.Next(e); err != nil || e.ID != d.ID {
					t.Fatalf("%+v is stored (%v)", e, err)
				}
				at = e.Seq
				break
			}
			if c.behind != nil {
				kind := tasklog.CancelRequested
				if st.Phase == tasklog.PhaseFailed {
					kind = tasklog.Cancelled
				}
				c.behind.next(t, c1, id, kind, st)
			}
			select {
			case a := <-got:
				t.Fatalf("Append answers %+v although the server was not heard", a)
			default:
			}
			p.cut()
			if a := <-got; a.err != nil || a.seq != at {
				t.Errorf("Append = %d, %v; want %d, nil", a.seq, a.err, at)
			}
			log, err := c1.Task(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := copies(log, d.ID); n != 1 || tasklog.Fold(log).Void != 0 {
				t.Errorf("the entry is stored %d times, %d are void", n, tasklog.Fold(log).Void)
			}
		})
	}
}

func TestAppendIsRefused(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	id := newTask()
	none := tasklog.State{}
	st := boss.next(t, c, id, tasklog.Submitted, none)
	for name, by := range map[string]writer{"agent": {"web-1", 7}, "orchestrator": boss} {
		d, err := by.draft(id, tasklog.Succeeded, message.Extension{}, none)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if seq, err := c.Append(t.Context(), d); !errors.Is(err, broker.ErrRefused) {
				t.Errorf("%s: Append at the wrong tail = %d, %v; want ErrRefused", name, seq, err)
			}
		}
	}
	d, err := boss.draft(id, tasklog.CancelRequested, message.Extension{}, st)
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.Append(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Append(t.Context(), d); err != nil || again != first {
		t.Errorf("the same draft again = %d, %v; want %d, nil", again, err, first)
	}
	big := d
	big.ID, big.Data = "x", make([]byte, broker.MaxPayload+1)
	if _, err := c.Append(t.Context(), big); !errors.Is(err, nats.ErrMaxPayload) || strings.Contains(err.Error(), "unknown") {
		t.Errorf("too large: %v", err)
	}
}

// An append whose fate is unknown is given up only when its caller gives up.
func TestAppendGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	s, c := listening(t)
	p := newProxy(t, s.URL())
	far := natstest.Connect(t, broker.Config{URL: p.url(), Timeout: 100 * time.Millisecond})
	d, err := boss.draft(newTask(), tasklog.Submitted, message.Extension{}, tasklog.State{})
	if err != nil {
		t.Fatal(err)
	}
	p.silence()
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := far.Append(ctx, d)
		got <- err
	}()
	for m, err := range c.Tail(t.Context(), subject.TasksStream, 1) {
		if err != nil || m.Entry().ID != d.ID {
			t.Fatalf("%+v, %v", m, err)
		}
		break
	}
	cancel(enough)
	if err := <-got; !errors.Is(err, enough) || !strings.Contains(err.Error(), "fate unknown") {
		t.Errorf("Append = %v", err)
	}
	far.Close()
	if _, err := far.Append(t.Context(), d); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("Append on a closed connection = %v", err)
	}
}

// The broker is killed again and again while entries are appended: nothing acknowledged is lost, nothing doubled.
func TestBrokerDiesWhileEntriesAreAppended(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startProcess(t, dir, "127.0.0.1:0")
	url := p.said
	c := natstest.Connect(t, broker.Config{URL: url, Timeout: time.Second, Log: natstest.Log(t)})
	if err := c.Ensure(t.Context(), broker.LimitsFor(1<<30), 1); err != nil {
		t.Fatal(err)
	}
	const writers, kills, steps = 6, 3, 40
	type chain struct {
		id     subject.TaskID
		stored map[string]uint64
	}
	chains := make([]chain, writers)
	reached := make(chan struct{}, writers*steps)
	var wg sync.WaitGroup
	for i := range writers {
		chains[i] = chain{newTask(), map[string]uint64{}}
		own := natstest.Connect(t, broker.Config{URL: url, Timeout: time.Second})
		wg.Go(func() {
			agent := writer{fmt.Sprintf("web-%d", i), 1}
			var st tasklog.State
			for step := range steps {
				by, kind := agent, tasklog.Paused
				switch {
				case step == 0:
					by, kind = boss, tasklog.Submitted
				case step == 1:
					kind = tasklog.Started
				case st.Paused:
					kind = tasklog.Resumed
				}
				d, err := by.draft(chains[i].id, kind, message.Extension{}, st)
				if err != nil {
					t.Error(err)
					return
				}
				seq, err := own.Append(t.Context(), d)
				if err != nil {
					t.Errorf("step %d: %v", step, err)
					return
				}
				chains[i].stored[d.ID] = seq
				if st, err = st.Next(tasklog.Read(d.Subject, d.Header(), d.Data, seq, zeroTime)); err != nil {
					t.Errorf("step %d: %v", step, err)
					return
				}
				reached <- struct{}{}
			}
		})
	}
	for range kills {
		for range writers * steps / (kills + 1) {
			select {
			case <-reached:
			case <-t.Context().Done():
				t.Fatal("the writers stand still")
			}
		}
		p.kill()
		p = startProcess(t, dir, strings.TrimPrefix(url, "nats://"))
		if p.said != url {
			t.Fatalf("the broker says %q", p.said)
		}
	}
	wg.Wait()
	for i, ch := range chains {
		log, err := c.Task(t.Context(), ch.id)
		if err != nil {
			t.Fatal(err)
		}
		if st := tasklog.Fold(log); len(log) != steps || st.Void != 0 {
			t.Errorf("writer %d: %d entries of %d, %d void", i, len(log), steps, st.Void)
		}
		for id, seq := range ch.stored {
			if n, at := copies(log, id); n != 1 || at != seq {
				t.Errorf("writer %d: an entry acknowledged at %d is there %d times, at %d", i, seq, n, at)
			}
		}
	}
}
