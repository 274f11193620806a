package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A Cursor is how far a watcher has read the two streams.
type Cursor struct {
	Tasks  uint64
	Status uint64
}

// String is the cursor as the id of an event.
func (c Cursor) String() string { return fmt.Sprintf("%d.%d", c.Tasks, c.Status) }

// ParseCursor reads the id of an event.
func ParseCursor(s string) (Cursor, error) {
	var c Cursor
	if s == "" {
		return c, nil
	}
	if n, err := fmt.Sscanf(s, "%d.%d", &c.Tasks, &c.Status); n != 2 || err != nil || c.String() != s {
		return Cursor{}, fmt.Errorf("event id %q is not <number>.<number>", s)
	}
	return c, nil
}

const (
	// settle is how long a watcher waits, after an end, for statuses that the end counts and the stream does not show.
	settle = 3 * time.Second

	// lookAgain is how long a watcher goes without looking for itself. It is woken by the views, and those may be behind:
	// nobody is to wait for what has happened already.
	lookAgain = 3 * time.Second
)

// Watch yields everything that happened to a task behind a cursor, in order, then what happens, and returns after the
// end mark. Each entry and each status comes once, in whatever pieces it is read. Statuses come before the end that
// counts them; those that have expired are yielded as one gap. Gap and end mark have the id of what came before them,
// so they come again when it is read from there. With follow false it stops at what there is now. A broker that is away
// is waited for by who follows. An error is the last thing it yields.
func (l *Ledger) Watch(ctx context.Context, id subject.TaskID, from Cursor, follow bool) iter.Seq2[view.Event, error] {
	return func(yield func(view.Event, error) bool) {
		wake, stop := l.subscribe(id)
		defer stop()
		w := watch{client: l.client, id: id, from: from, at: from, yield: yield, count: map[int]int{}}
		var patience <-chan time.Time
		look := time.NewTicker(lookAgain)
		defer look.Stop()
		for {
			more, err := w.round(ctx, !follow)
			switch {
			case ctx.Err() != nil || err == nil && !more:
				return
			case err != nil && (!follow || broker.Lost(err)):
				yield(view.Event{}, err)
				return
			case err == nil && w.ended() && patience == nil:
				patience = time.After(settle)
			}
			select {
			case <-ctx.Done():
				return
			case <-wake:
			case <-look.C:
			case <-patience:
				w.impatient = true
			}
		}
	}
}

func (l *Ledger) subscribe(id subject.TaskID) (wake chan struct{}, stop func()) {
	wake = make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers[id] == nil {
		l.watchers[id] = map[chan struct{}]bool{}
	}
	l.watchers[id][wake] = true
	return wake, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers[id], wake)
		if len(l.watchers[id]) == 0 {
			delete(l.watchers, id)
		}
	}
}

// errEnough ends a round when the reader wants no more.
var errEnough = errors.New("enough")

// A watch is one reader's way through a task.
type watch struct {
	client    *broker.Client
	id        subject.TaskID
	from      Cursor // where the reader began
	at        Cursor // how far it is
	yield     func(view.Event, error) bool
	impatient bool

	log    []tasklog.Entry // the whole log, as far as it is read
	news   []tasklog.Entry // read, to be yielded before the end
	room   int             // for what void entries among them carry
	reader tasklog.Reader
	behind []tasklog.Entry // the valid end, and what was put behind it
	status uint64          // statuses are read up to here
	count  map[int]int     // statuses read, by attempt
	seen   recent
}

func (w *watch) ended() bool { return len(w.behind) > 0 }

// recent remembers the last message ids, to drop what was sent twice: a repetition comes soon after its first.
type recent struct {
	ids  map[message.UUID]bool
	ring [512]message.UUID
	n    int
}

// repeated reports whether an id was seen lately, and remembers it.
func (r *recent) repeated(id message.UUID) bool {
	if r.ids[id] {
		return true
	}
	if r.ids == nil {
		r.ids = map[message.UUID]bool{}
	}
	slot := &r.ring[r.n%len(r.ring)]
	delete(r.ids, *slot)
	*slot, r.ids[id] = id, true
	r.n++
	return false
}

// round yields what is new. It returns more=false when there is nothing to come: the end was yielded, or last is set.
func (w *watch) round(ctx context.Context, last bool) (more bool, err error) {
	if err := w.readLog(ctx); err != nil {
		return false, err
	}
	if err = w.readStatus(ctx); err == nil {
		err = w.entries(len(w.news))
	}
	if err == nil && w.ended() {
		more, err = w.finish(last)
	} else if err == nil {
		more = !last
	}
	if errors.Is(err, errEnough) {
		return false, nil
	}
	return more, err
}

// readLog reads the entries behind those read before, and keeps those to be yielded. From the end on they are kept
// apart: the statuses that the end counts come first.
func (w *watch) readLog(ctx context.Context) error {
	from := uint64(1)
	if n := len(w.log); n > 0 {
		from = w.log[n-1].Seq + 1
	}
	if len(w.news)+len(w.behind) == 0 {
		w.room = voidRoom
	}
	for m, err := range w.client.Current(ctx, subject.TasksStream, subject.Task(w.id), from) {
		if err != nil {
			return fmt.Errorf("watch task %s: %w", w.id, err)
		}
		e := m.Entry()
		kept, void := w.reader.Next(e)
		w.log = append(w.log, kept)
		if void != nil {
			e = shown(e, void, &w.room)
		}
		switch {
		case w.reader.State.Phase == tasklog.PhaseEnded:
			w.behind = append(w.behind, e)
		case e.Seq > w.from.Tasks:
			w.news = append(w.news, e)
		}
	}
	return nil
}

// readStatus yields new statuses, and before each the entries that were stored earlier. A reader that goes on where
// it stood has those before it read again: they count, and what was sent twice is known by them.
func (w *watch) readStatus(ctx context.Context) error {
	for m, err := range w.client.Current(ctx, subject.StatusStream, subject.Task(w.id), w.status+1) {
		if err != nil {
			return fmt.Errorf("watch task %s: %w", w.id, err)
		}
		ev, id := w.statusEvent(m)
		if ev.Attempt > w.reader.State.Attempt { // its start was stored since the log was read
			if err := w.readLog(ctx); err != nil {
				return err
			}
		}
		w.status = m.Seq
		repeated := id != "" && w.seen.repeated(id)
		if !repeated {
			w.count[ev.Attempt]++
		}
		if repeated || m.Seq <= w.from.Status {
			continue
		}
		for len(w.news) > 0 && w.news[0].Time.Before(m.Time) {
			if err := w.entries(1); err != nil {
				return err
			}
		}
		w.at.Status = m.Seq
		ev.ID = w.at.String()
		if !w.yield(ev, nil) {
			return errEnough
		}
	}
	return nil
}

func (w *watch) statusEvent(m broker.Msg) (ev view.Event, id message.UUID) {
	ev = view.Event{Kind: "status", Time: m.Time, Message: m.Data}
	if p, ok := subject.Parse(m.Subject); ok {
		ev.AgentID = p.Writer
	}
	st, err := message.Decode[message.WorkStatus](m.Data)
	if err != nil {
		ev.Void, ev.Message = err.Error(), nil
		return ev, ""
	}
	ev.Attempt = attemptOf(st.Custom)
	return ev, st.MessageID
}

// entries yields the next n of what is new.
func (w *watch) entries(n int) error {
	for range n {
		e := w.news[0]
		w.news = w.news[1:]
		if err := w.entry(e); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) entry(e tasklog.Entry) error {
	w.at.Tasks = max(w.at.Tasks, e.Seq)
	if !w.yield(w.event(e), nil) {
		return errEnough
	}
	return nil
}

// finish yields the end and the end mark once every status that the end counts was yielded, or will not come.
func (w *watch) finish(last bool) (more bool, err error) {
	end, want := w.behind[0], 0
	if x := end.Message.Custom.Chiffon; x != nil {
		want = x.StatusCount
	}
	missing := want - w.count[end.Attempt]
	if missing > 0 && !w.impatient && !last && time.Since(end.Time) < time.Minute {
		return true, nil
	}
	if missing > 0 && !w.yield(view.Event{ID: w.at.String(), Kind: "gap", Time: end.Time, Attempt: end.Attempt, Missing: missing}, nil) {
		return false, nil
	}
	for _, e := range w.behind {
		if e.Seq > w.from.Tasks {
			if err := w.entry(e); err != nil {
				return false, err
			}
		}
	}
	task := newTask(w.id).Describe(w.log)
	w.yield(view.Event{ID: w.at.String(), Kind: "end", Time: end.Time, Task: &task}, nil)
	return false, nil
}
