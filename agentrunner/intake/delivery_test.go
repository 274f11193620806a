package intake_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"chiffon/agentrunner/intake"
	"chiffon/agentrunner/spool"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A request that comes again after its task has ended does nothing but be acknowledged.
func TestDelivery6SettledRequestIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{workType: "talk"})
	m := w.snatch(subject.Normal) // somebody has the message, says nothing, and gives it back later
	a := w.agent("one")
	w.requestAgainAndRun(id)
	if err := m.Nak(); err != nil {
		t.Fatal(err)
	}
	w.settled(subject.Normal)
	a.stop(nil)
	want := []tasklog.Kind{tasklog.Submitted, tasklog.Queued, tasklog.Started, tasklog.Succeeded}
	if got := w.kinds(id); !slices.Equal(got, want) {
		t.Errorf("log is %v, want %v", got, want)
	}
}

// junk puts entries that do not count on the log of a task.
func (w *world) junk(id subject.TaskID, n, size int) {
	w.Helper()
	data := bytes.Repeat([]byte("x"), size)
	for k := range n {
		last, err := w.Send(subject.Event(id, "vandal"), data)
		if err != nil {
			w.Fatal(err)
		}
		if k%100 == 99 || k == n-1 || size > 10_000 {
			if err := last.Wait(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// A log that does not fit one answer is folded page by page.
func TestDelivery5VoidEntriesBehindTheRequest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ count, size, page int }{
		"small pages": {5, 10, 1},
		"many":        {3000, 10, 512},
		"large":       {6, 900_000, 512},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.page = test.page
			id := w.submit(order{workType: "talk"})
			w.junk(id, test.count, test.size)
			w.agent("one")
			w.entry(id, tasklog.Succeeded)
			if st := w.state(id); st.Void != test.count || st.Attempt != 1 {
				t.Errorf("state %+v", st)
			}
		})
	}
}

// No free slot: the request is handed back, without an entry.
func TestDelivery1NoFreeSlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	w.eventually("it waits for work", func() bool { return w.waiting(subject.Low).NumWaiting == 1 })
	d := w.door()
	first := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	second := w.submit(order{workType: "talk", priority: subject.Low})
	w.eventually("it was handed out", func() bool { return w.waiting(subject.Low).Delivered.Consumer == 1 })
	if got := w.kinds(second); len(got) != 1 {
		t.Errorf("log is %v while no slot is free", got)
	}
	d.open()
	w.entry(first, tasklog.Succeeded)
	w.entry(second, tasklog.Succeeded)
}

// A request of a task in a slot: an older one than what was started is acknowledged, the next attempt's handed back.
func TestDelivery2TaskInASlot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) { c.Slots, c.Lease = 2, time.Hour })
	d := w.door()
	o := order{workType: "gate", params: d.params()}
	id := w.submit(o)
	d.begun(1)
	w.settled(subject.Normal)
	w.again(a) // the very request, as a broker does that has lost the acknowledgement
	w.settled(subject.Normal)
	w.revoke(id)
	w.requeue(id, o)
	w.eventually("the next attempt's request was handed out, and back", func() bool {
		i := w.waiting(subject.Normal)
		return i.NumAckPending == 1 && i.NumRedelivered > 0
	})
	d.open()
	w.entry(id, tasklog.Succeeded) // the first attempt's: nobody else had begun
	w.settled(subject.Normal)
	if st := w.state(id); st.Attempt != 1 || st.End != tasklog.Succeeded || len(strings.Fields(string(d.begun(1)))) != 1 {
		t.Errorf("state %+v, begun %q", st, d.begun(1))
	}
}

// again has all requests delivered to an agent once more: the durable forgets what was acknowledged.
func (w *world) again(a *agent) {
	w.Helper()
	name := subject.TypeConsumer(agentType, subject.Normal)
	answer, err := w.Request(w.Context(), "$JS.API.CONSUMER.DELETE."+subject.TasksStream+"."+name, nil)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.TypeConsumers(w.Context(), agentType); err != nil {
		w.Fatalf("%v, after %s", err, answer)
	}
	w.eventually("the requests are delivered again", func() bool {
		a.Control(message.HeartbeatReply{Consumers: consumers()}) // it had found the durable gone, perhaps
		return w.waiting(subject.Normal).Delivered.Consumer > 0
	})
}

// The journal holds the entry's id and expectation before the entry is in the log; TestJournalCannotBeWritten shows that
// nothing is started without it.
func TestDelivery3JournalBeforeStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one")
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	started := w.entry(id, tasklog.Started)
	r := a.record(t, id)
	if r.Entry != started.ID || r.Expect != started.Expect || r.Boot != started.Boot || r.Attempt != 1 {
		t.Errorf("journal has %+v, the log %+v", r, started)
	}
	d.open()
	w.entry(id, tasklog.Succeeded)
}

// record reads what a runner has in its journal of a task.
func (a *agent) record(t *testing.T, id subject.TaskID) (r spool.Record) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(a.state, "attempts", string(id)+".json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// From the started entry on the log speaks for the attempt: the request is done with while the work runs.
func TestDelivery4StoredIsAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent("one")
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	d.begun(1)
	w.settled(subject.Normal)
	d.open()
	w.entry(id, tasklog.Succeeded)
}

// The lease has run out between the started entry and the beginning of the work: the log says whether it begins.
func TestDelivery7LeaseRunOutBeforeTheWorkBegins(t *testing.T) {
	t.Parallel()
	const lease = 300 * time.Millisecond
	for name, test := range map[string]struct {
		meanwhile func(*world, subject.TaskID)
		want      []tasklog.Kind // behind the second started
		begins    bool
	}{
		"held":       {func(*world, subject.TaskID) {}, []tasklog.Kind{tasklog.Succeeded}, true},
		"cancelling": {func(w *world, id subject.TaskID) { w.cancel(id, message.Cancel{}) }, []tasklog.Kind{tasklog.CancelRequested, tasklog.Cancelled}, false},
		"lost":       {func(w *world, id subject.TaskID) { w.revoke(id) }, []tasklog.Kind{tasklog.AttemptFailed}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.door()
			d.open()
			o := order{workType: "gate", params: d.params()}
			id := w.submit(o)
			if err := w.snatch(subject.Normal).Ack(); err != nil {
				t.Fatal(err)
			}
			w.life(id, "gate", true, true) // another runner had the first attempt
			w.revoke(id)
			w.requeue(id, o)
			var once sync.Once
			w.answer = func() ([]byte, bool) { // a second attempt asks how long the first took; that takes a while
				once.Do(func() {
					from := time.Now()
					test.meanwhile(w, id)
					w.eventually("a lease is over", func() bool { return time.Since(from) > lease })
				})
				return nil, false
			}
			a := w.agent("two", func(c *intake.Config) { c.Lease = lease })
			w.until("the second start", func(e tasklog.Entry, _ tasklog.State) bool { return e.Kind == tasklog.Started && e.Attempt == 2 })
			w.eventually("nothing is in hand", func() bool { return len(a.Running()) == 0 })
			want := append([]tasklog.Kind{tasklog.Submitted, tasklog.Started, tasklog.AttemptFailed, tasklog.Queued, tasklog.Started}, test.want...)
			if got := w.kinds(id); !slices.Equal(got, want) {
				t.Errorf("log is %v, want %v", got, want)
			}
			if _, err := os.Stat(d.path + ".up"); (err == nil) != test.begins {
				t.Errorf("begun is %v, want %v", err == nil, test.begins)
			}
		})
	}
}

// junkRequests puts messages that are no requests where requests stand.
func (w *world) junkRequests(n int) {
	w.Helper()
	subj := subject.Request(subject.TaskID(message.NewUUID()), agentType, subject.Any, subject.Normal)
	for k := range n {
		last, err := w.Send(subj, []byte("junk"))
		if err != nil {
			w.Fatal(err)
		}
		if k%1000 == 999 || k == n-1 {
			if err := last.Wait(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
	}
}

// Many messages that are no requests are fetched many at once; what stands among them is begun, in its order.
func TestJunkRequestsHoldUpLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []subject.TaskID
	for range 4 {
		w.junkRequests(300)
		want = append(want, w.submit(order{workType: "noop"}), w.submit(order{workType: "noop"}))
	}
	w.agent("one")
	var got []subject.TaskID
	w.until("every start", func(e tasklog.Entry, _ tasklog.State) bool {
		if e.Kind == tasklog.Started {
			got = append(got, e.Subject.Task)
		}
		return len(got) == len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("begun in the order %v, want %v", got, want)
	}
	w.settled(subject.Normal)
}

// 6.5: a request whose task was cancelled before anybody took it starts nothing, though it is still delivered.
func TestRuleCancelledNeverRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.door()
	id := w.submit(order{workType: "gate", params: d.params()})
	m := message.New("orchestrator", agentType, message.NewUUID(), message.NewUUID(), message.WorkResult{TaskID: id, Status: message.ResultCancelled})
	m.Custom.Chiffon = &message.Extension{Cancel: &message.Cancel{By: "admin"}}
	w.append(tasklog.Write(tasklog.Cancelled, id, subject.Event(id, subject.Orchestrator), m))(w.state(id).TailSeq, 0)
	a := w.agent("one")
	w.settled(subject.Normal) // it has had the request, and is done with it
	a.stop(nil)
	if got, want := w.kinds(id), []tasklog.Kind{tasklog.Submitted, tasklog.Cancelled}; !slices.Equal(got, want) {
		t.Errorf("log is %v, want %v", got, want)
	}
	if _, err := os.Stat(d.path + ".up"); err == nil {
		t.Error("the work has run")
	}
}
