package dispatch

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

func atPriority(p subject.Priority) func(*Order) {
	return func(o *Order) { o.Request.Custom.Chiffon.Priority = string(p) }
}

func inTheAttic(o *Order) { o.Request.Custom.Chiffon.On = map[string]string{"site": "attic"} }

func at(agent string) func(tasklog.State) bool {
	return func(st tasklog.State) bool { return st.Phase == tasklog.PhaseQueued && st.Target == agent }
}

// While its slots are taken, an agent has one task of each priority put to it; the most urgent is what it is handed
// next, before anything that any agent may take.
func TestUrgentIsNext(t *testing.T) {
	t.Parallel()
	slow := brisk
	slow.Lease = patience
	s := newSite(t, slow)
	s.leads()
	attic := labelled("site", "attic")
	s.beat("a", 1, attic, func(hb *message.Heartbeat) { hb.Slots = 1 })
	first := s.submit(inTheAttic)
	s.until(first, "placed on a", at("a"))
	s.started(first, "a", 1, 1)
	s.beat("a", 1, attic, func(hb *message.Heartbeat) {
		hb.Running = []message.Running{{TaskID: first, Attempt: 1, Boot: 1}}
	})
	for range 3 {
		s.submit()
		s.submit(atPriority(subject.Critical))
	}
	var low []subject.TaskID
	for range 4 {
		low = append(low, s.submit(inTheAttic, atPriority(subject.Low)))
	}
	s.until(low[0], "the oldest is placed", at("a"))
	critical := s.submit(inTheAttic, atPriority(subject.Critical))
	s.until(critical, "placed on a", at("a"))
	for _, id := range low[1:] {
		if st := s.state(id); st.Phase != tasklog.PhaseHeld {
			t.Errorf("%s is %v, want held: another is next at its priority", id, st.Phase)
		}
	}
	names, err := s.d.Consumers(t.Context(), "a", "infra")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		cons, err := s.Consumer(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := cons.Next(jetstream.FetchMaxWait(200 * time.Millisecond))
		if err != nil {
			continue
		}
		if want := subject.Request(critical, "infra", "a", subject.Critical); m.Subject() != want {
			t.Errorf("a is handed %s first, want %s", m.Subject(), want)
		}
		return
	}
	t.Error("a is handed nothing")
}

// Of what waits for one slot, the most urgent gets it, and of those the oldest.
func TestUrgentGetsTheSlot(t *testing.T) {
	t.Parallel()
	slow := brisk
	slow.Lease = patience
	s := newSite(t, slow)
	attic := labelled("site", "attic")
	var ids []subject.TaskID
	for _, p := range []subject.Priority{subject.Low, subject.Normal, subject.Critical, subject.High, subject.Critical} {
		ids = append(ids, s.submit(inTheAttic, atPriority(p)))
	}
	if err := s.ledger.Wait(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	s.leads()
	s.beat("a", 1, attic)
	for _, i := range []int{2, 3, 1, 0} {
		s.until(ids[i], "placed on a", at("a"))
	}
	if st := s.state(ids[4]); st.Phase != tasklog.PhaseHeld {
		t.Errorf("the younger of two is %v, want held", st.Phase)
	}
}

// However much somebody puts there by hand, others' work goes first.
func TestStraysWait(t *testing.T) {
	t.Parallel()
	slow := brisk
	slow.Lease, slow.LeaderQuiet = patience, 3*time.Second
	c := natstest.Run(t)
	kv, err := c.Bucket(t.Context(), broker.StateBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), leaderKey, "another, which has just died"); err != nil {
		t.Fatal(err)
	}
	s := join(t, c, slow)
	s.beat("a", 1, labelled("site", "attic"))
	const many = 2000
	var all []broker.Receipt
	for range many {
		r, err := s.Send(subject.Request(subject.TaskID(message.NewUUID()), "infra", subject.Any, subject.Critical), []byte("hello"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for end := uint64(0); end <= many; { // until it is at it
		if end, err = s.End(t.Context(), subject.TasksStream, subject.AllEvents); err != nil {
			t.Fatal(err)
		}
	}
	id := s.submit(inTheAttic)
	st := tasklog.Fold(s.until(id, "placed on a", at("a")))
	if before := int(st.TailSeq) - many - 2; before > many/2 {
		t.Errorf("%d strays were ended before the task was placed", before)
	}
}

// One sweep does not promise a slot twice.
func TestPlacesOnlyWhatFits(t *testing.T) {
	t.Parallel()
	one, w := situation{task: do(held), agents: all(somebody("a"))}.make()
	first, ok := decide(one, w)
	if !ok {
		t.Fatal("decide places nothing on a free agent")
	}
	w.took(one, first)
	if second, ok := decide(one, w); ok {
		t.Errorf("decide = %v, want nothing: the slot is promised, and one task is next", second)
	}
}
