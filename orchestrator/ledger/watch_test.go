package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

// shown is what a reader gets from a cursor on: each event as one word.
func (w *world) shown(id subject.TaskID, cursor string, follow bool) (words []string, events []view.Event) {
	w.Helper()
	at, err := ledger.ParseCursor(cursor)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for ev, err := range w.Watch(ctx, id, at, follow) {
		if err != nil {
			w.Fatal(err)
		}
		events = append(events, ev)
		words = append(words, word(ev))
	}
	return words, events
}

func word(ev view.Event) string {
	switch {
	case ev.Kind == "gap":
		return fmt.Sprintf("gap of %d", ev.Missing)
	case ev.Void != "":
		return "void"
	case ev.Kind == "status":
		m, err := message.Decode[message.WorkStatus](ev.Message)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d%%", *m.Payload.ProgressPercent)
	}
	return ev.Kind
}

// life makes a task with all that can happen to one.
func life(w *world) subject.TaskID {
	w.Helper()
	id := w.submit(order{})
	w.start(id, 1)
	w.status(id, 1, 10, 1)
	w.status(id, 1, 20, 3) // its confirmation was lost, twice
	w.fail(id, 1)
	w.status(id, 1, 30, 1) // late
	w.requeue(id, 1)
	w.put(subject.Event(id, "mallory"), []byte("void"))
	w.start(id, 2)
	w.put(subject.Status(id, "a"), []byte("no status"))
	for percent := 40; percent < 90; percent += 10 {
		w.status(id, 2, percent, 2)
	}
	w.end(id, 2, 5)
	w.put(subject.Event(id, "mallory"), []byte("too late"))
	w.folded(w.Ledger)
	return id
}

var wholeLife = strings.Fields(`submitted started 10% 20% attempt_failed 30% queued void started void 40% 50% 60% 70% 80% succeeded void end`)

func TestWatchIsCompleteAndInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := life(w)
	for _, follow := range []bool{true, false} {
		got, events := w.shown(id, "", follow)
		if !slices.Equal(got, wholeLife) {
			t.Errorf("Watch(follow %v) =\n%v, want\n%v", follow, got, wholeLife)
		}
		end := events[len(events)-1]
		if end.Task == nil || end.Task.State != view.Succeeded || end.Task.Result.Output != "done" || end.Task.Attempt != 2 {
			t.Errorf("end mark = %+v, want the task as it ended", end.Task)
		}
	}
}

// Wherever a reader was cut off, it gets what it has not seen, once, and nothing that it has.
func TestWatchGoesOnAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := life(w)
	_, events := w.shown(id, "", false)
	for i, ev := range events[:len(events)-1] {
		if got, _ := w.shown(id, ev.ID, i%2 == 0); !slices.Equal(got, wholeLife[i+1:]) {
			t.Errorf("Watch from %s (%s) =\n%v, want\n%v", ev.ID, wholeLife[i], got, wholeLife[i+1:])
		}
	}
	if got, _ := w.shown(id, events[len(events)-1].ID, true); !slices.Equal(got, []string{"end"}) {
		t.Errorf("Watch from the end = %v, want the end mark again", got)
	}
}

// Readers that were there from before the beginning see the same, each at its own pace.
func TestManyWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := subject.TaskID(message.NewUUID())
	const readers = 30
	results := make([][]string, readers)
	var wg, begun sync.WaitGroup
	begun.Add(readers)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range readers {
		wg.Go(func() {
			first := sync.OnceFunc(begun.Done)
			defer first()
			for ev, err := range w.Watch(ctx, id, ledger.Cursor{}, true) {
				if first(); err != nil {
					t.Error(err)
				}
				results[i] = append(results[i], word(ev))
			}
		})
	}
	w.put(subject.Event(id, "mallory"), []byte("first"))
	begun.Wait()
	w.submit(order{id: id})
	w.start(id, 1)
	for percent := range 50 {
		w.status(id, 1, percent+1, 1)
	}
	w.end(id, 1, 50)
	wg.Wait()
	for i, got := range results {
		if len(got) != 55 || got[0] != "void" || got[1] != "submitted" || got[2] != "started" || got[53] != "succeeded" || got[54] != "end" {
			t.Fatalf("reader %d of %d saw %d events: %v", i, readers, len(got), got)
		}
	}
}

// An end is not shown before the statuses that it counts, however late they are seen.
func TestWatchWaitsForStatuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	w.start(id, 1)
	w.status(id, 1, 10, 1)
	w.end(id, 1, 2)
	var got []string
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ev, err := range w.Watch(ctx, id, ledger.Cursor{}, true) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, word(ev)); len(got) == 3 {
			w.status(id, 1, 20, 1)
		}
	}
	if want := strings.Fields("submitted started 10% 20% succeeded end"); !slices.Equal(got, want) {
		t.Errorf("Watch = %v, want %v", got, want)
	}
}

func TestWatchTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	w.start(id, 1)
	w.status(id, 1, 10, 3)
	w.end(id, 1, 4)
	want := []string{"submitted", "started", "10%", "gap of 3", "succeeded", "end"}
	for _, follow := range []bool{false, true} {
		got, events := w.shown(id, "", follow)
		if !slices.Equal(got, want) {
			t.Errorf("Watch(follow %v) = %v, want %v", follow, got, want)
		}
		if got, _ := w.shown(id, events[2].ID, false); !slices.Equal(got, want[3:]) {
			t.Errorf("Watch from the last status = %v, want %v", got, want[3:])
		}
	}
	if err := w.PurgeTask(t.Context(), subject.StatusStream, id, 0); err != nil {
		t.Fatal(err)
	}
	want = []string{"submitted", "started", "gap of 4", "succeeded", "end"}
	if got, _ := w.shown(id, "", false); !slices.Equal(got, want) {
		t.Errorf("Watch of what has expired = %v, want %v", got, want)
	}
}

func TestWatchWithoutFollowing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	w.start(id, 1)
	w.status(id, 1, 10, 1)
	if got, _ := w.shown(id, "", false); !slices.Equal(got, strings.Fields("submitted started 10%")) {
		t.Errorf("Watch = %v", got)
	}
	if got, _ := w.shown(subject.TaskID(message.NewUUID()), "", false); len(got) != 0 {
		t.Errorf("Watch of nothing = %v", got)
	}
}

// Who has had enough is not written to again.
func TestWatchStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := life(w)
	for n := 1; n <= len(wholeLife); n++ {
		seen := 0
		for range w.Watch(t.Context(), id, ledger.Cursor{}, true) {
			if seen++; seen == n {
				break
			}
		}
	}
}

// Views that are stuck wake nobody. Who follows a task sees its end all the same.
func TestWatchOverStuckViews(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck := ledger.New(w.Client, natstest.Log(t))
	id := w.submit(order{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []string
	for ev, err := range stuck.Watch(ctx, id, ledger.Cursor{}, true) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, word(ev)); len(got) == 1 {
			w.start(id, 1)
			w.status(id, 1, 10, 1)
			w.end(id, 1, 1)
		}
	}
	if want := strings.Fields("submitted started 10% succeeded end"); !slices.Equal(got, want) {
		t.Errorf("Watch = %v, want %v", got, want)
	}
}

// A broker that is away for longer than a question to it may take: who follows a task waits for it.
func TestWatchOverRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, first := natstest.Start(t, broker.ServerConfig{Dir: dir, Listen: "127.0.0.1:0", Relaxed: true})
	first.Close()
	url := s.URL()
	w := &world{TB: t, Client: natstest.Connect(t, broker.Config{URL: url, Timeout: time.Second})}
	w.Ledger, w.stop = w.run(ledger.New(w.Client, natstest.Log(t)))
	id := w.submit(order{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var got []string
	for ev, err := range w.Watch(ctx, id, ledger.Cursor{}, true) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, word(ev)); len(got) > 1 {
			continue
		}
		s.Stop()
		time.AfterFunc(5*time.Second, func() { // longer than a reader goes without looking, and its question takes
			again, err := broker.Start(broker.ServerConfig{Dir: dir, Listen: strings.TrimPrefix(url, "nats://"), Relaxed: true, SyncEvery: time.Minute})
			if err != nil {
				t.Error(err)
				cancel()
				return
			}
			t.Cleanup(again.Stop)
			w.start(id, 1)
			w.status(id, 1, 10, 1)
			w.end(id, 1, 1)
		})
	}
	if want := strings.Fields("submitted started 10% succeeded end"); !slices.Equal(got, want) {
		t.Errorf("Watch = %v, want %v", got, want)
	}
}
