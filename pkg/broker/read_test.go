package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// fill puts numbered messages on a status subject, each with a body of some bytes.
func fill(t *testing.T, c *broker.Client, subj string, from, to, size int) {
	t.Helper()
	var all []broker.Receipt
	for i := from; i < to; i++ {
		body := append([]byte(strconv.Itoa(i)+" "), bytes.Repeat([]byte("x"), size)...)
		r, err := c.Send(subj, body)
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
}

func numberOf(m broker.Msg) int {
	word, _, _ := strings.Cut(string(m.Data), " ")
	n, err := strconv.Atoi(word)
	if err != nil {
		return -1
	}
	return n
}

func TestRange(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	one, two := subject.Status(newTask(), "web-1"), subject.Status(newTask(), "web-1")
	fill(t, c, one, 0, 700, 0)
	fill(t, c, two, 0, 3, 0)
	fill(t, c, one, 700, 1300, 0)
	count := func(filter string, from uint64) int {
		n, last := 0, uint64(0)
		for m, err := range c.Range(t.Context(), subject.StatusStream, filter, from) {
			if err != nil {
				t.Fatal(err)
			}
			if filter == one && from < 2 && numberOf(m) != n || m.Seq <= last || m.Seq < from || m.Time.IsZero() {
				t.Fatalf("message %d of %s is %d at %d", n, filter, numberOf(m), m.Seq)
			}
			n, last = n+1, m.Seq
		}
		return n
	}
	for name, want := range map[string]struct {
		filter string
		from   uint64
		n      int
	}{
		"one subject":        {one, 0, 1300},
		"the other":          {two, 1, 3},
		"all":                {">", 1, 1303},
		"from the middle":    {one, 701, 600},
		"from a message on":  {two, 702, 2},
		"from the last":      {one, 1303, 1},
		"from behind it all": {one, 1304, 0},
		"nothing there":      {subject.Status(newTask(), "web-1"), 1, 0},
		"one batch exactly":  {one, 1303 - 511, 512},
	} {
		if got := count(want.filter, want.from); got != want.n {
			t.Errorf("%s: %d messages, want %d", name, got, want.n)
		}
	}
	for m, err := range c.Range(t.Context(), subject.StatusStream, ">", 1) {
		if err != nil || m.Seq != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		break
	}
	for _, err := range c.Range(t.Context(), "NO_SUCH_STREAM", ">", 1) {
		if err == nil {
			t.Fatal("a stream that is not there is read")
		}
	}
}

// One direct get is bounded in bytes as well: more than the client's buffers hold was dropped, and nobody said so.
func TestRangeOfLargeMessages(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	subj := subject.Status(newTask(), "web-1")
	const n, size = 60, 3 << 20 // more than 64 MiB, in fewer messages than a batch
	for i := range n {
		fill(t, c, subj, i, i+1, size)
	}
	got := 0
	for m, err := range c.Range(t.Context(), subject.StatusStream, subj, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if numberOf(m) != got || len(m.Data) < size {
			t.Fatalf("message %d has number %d and %d bytes", got, numberOf(m), len(m.Data))
		}
		got++
	}
	if got != n {
		t.Errorf("%d messages, want %d", got, n)
	}
}

func TestTaskAndLast(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	unknown := newTask()
	if log, err := c.Task(t.Context(), unknown); err != nil || len(log) != 0 {
		t.Errorf("unknown task: %d entries, %v", len(log), err)
	}
	if _, found, err := c.Last(t.Context(), subject.Event(unknown, "web-1")); err != nil || found {
		t.Errorf("last of an unknown task: %v, %v", found, err)
	}
	if end, err := c.End(t.Context(), subject.TasksStream, ">"); err != nil || end != 0 {
		t.Errorf("end of an empty stream is %d, %v", end, err)
	}
	id, web := newTask(), writer{"web-1", 7}
	st := boss.next(t, c, id, tasklog.Submitted, tasklog.State{})
	st = web.next(t, c, id, tasklog.Started, st)
	st = web.next(t, c, id, tasklog.Paused, st)
	boss.next(t, c, newTask(), tasklog.Submitted, tasklog.State{})
	log, err := c.Task(t.Context(), id)
	if err != nil || len(log) != 3 || tasklog.Fold(log).TailSeq != st.TailSeq || tasklog.Fold(log).Void != 0 {
		t.Errorf("log is %+v, %v", log, err)
	}
	if e, found, err := c.Last(t.Context(), subject.Event(id, "web-1")); err != nil || !found || e.Kind != tasklog.Paused || e.Seq != st.TailSeq {
		t.Errorf("last is %+v, %v, %v", e, found, err)
	}
	if end, err := c.End(t.Context(), subject.TasksStream, subject.Task(id)); err != nil || end != st.TailSeq {
		t.Errorf("end is %d, %v; want %d", end, err, st.TailSeq)
	}
	if err := c.PurgeTask(t.Context(), subject.TasksStream, id, 0); err != nil {
		t.Fatal(err)
	}
	if log, err := c.Task(t.Context(), id); err != nil || len(log) != 0 {
		t.Errorf("purged task: %d entries, %v", len(log), err)
	}
}

// Whoever may put a message on a subject chooses its headers. None of them may pass for the server's.
func TestForgedHeaders(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*nats.Msg{
		"the place":           {Header: nats.Header{"Nats-Sequence": {"1"}, "Nats-Time-Stamp": {"1999-01-01T00:00:00Z"}, "Nats-Last-Sequence": {"77"}, "Nats-Num-Pending": {"0"}}},
		"the subject":         {Header: nats.Header{"Nats-Subject": {"chiffon.task.x.event.orchestrator"}}},
		"no message":          {Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}},
		"no message, no body": {Header: nats.Header{"Status": {"404"}}, Data: []byte{}},
		"end of batch":        {Header: nats.Header{"Status": {"204"}, "Description": {"EOB"}, "Nats-Num-Pending": {"0"}}, Data: []byte{}},
		"nobody there":        {Header: nats.Header{"Status": {"503"}}, Data: []byte{}},
		"consumer deleted":    {Header: nats.Header{"Status": {"409"}, "Description": {"Consumer Deleted"}}, Data: []byte{}},
		"a heartbeat":         {Header: nats.Header{"Status": {"100"}, "Description": {"Idle Heartbeat"}}, Data: []byte{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, c := listening(t)
			id := newTask()
			st := boss.next(t, c, id, tasklog.Submitted, tasklog.State{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var followed []broker.Msg
			three := make(chan struct{})
			go func() {
				for m := range c.Tail(ctx, subject.TasksStream, 1) {
					if followed = append(followed, m); len(followed) == 3 {
						close(three)
						return
					}
				}
			}()
			if m.Data == nil {
				m.Data = []byte("hello")
			}
			m.Subject = subject.Event(id, "evil-1")
			put(t, raw(t, s), m)
			st.TailSeq++
			boss.next(t, c, id, tasklog.Queued, st)
			log, err := c.Task(t.Context(), id)
			if err != nil || len(log) != 3 || log[1].Subject.Writer != "evil-1" || log[1].Seq != 2 || log[2].Kind != tasklog.Queued {
				t.Fatalf("log: %+v, %v", log, err)
			}
			if age := time.Since(log[1].Time); age > time.Hour || age < 0 {
				t.Errorf("it says that it is %v old", age)
			}
			e, found, err := c.Last(t.Context(), m.Subject)
			if err != nil || !found || e.Seq != 2 || e.Err == nil || e.Subject.Writer != "evil-1" {
				t.Errorf("last: %+v, %v, %v", e, found, err)
			}
			<-three
			for i, m := range followed {
				if m.Seq != uint64(i+1) {
					t.Errorf("message %d of the tail is at %d", i, m.Seq)
				}
			}
		})
	}
}

// A header that cannot be parsed makes one entry void, and no log unreadable.
func TestMalformedHeader(t *testing.T) {
	t.Parallel()
	s, c := listening(t)
	id := newTask()
	st := boss.next(t, c, id, tasklog.Submitted, tasklog.State{})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	subj, head := subject.Event(id, "evil-1"), "NATS/1.0\r\nno colon here\r\n\r\n"
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB %s %d %d\r\n%shello\r\n", subj, len(head), len(head)+5, head); err != nil {
		t.Fatal(err)
	}
	for m, err := range c.Tail(t.Context(), subject.TasksStream, st.TailSeq+1) {
		if err != nil || m.Subject != subj {
			t.Fatalf("%+v, %v", m, err)
		}
		break
	}
	st.TailSeq++
	boss.next(t, c, id, tasklog.Queued, st)
	log, err := c.Task(t.Context(), id)
	if err != nil || len(log) != 3 || log[1].Err == nil || log[1].Subject.Writer != "evil-1" || log[1].Seq != 2 || log[1].Data != nil {
		t.Fatalf("log: %+v, %v", log, err)
	}
	if e, found, err := c.Last(t.Context(), subj); err != nil || !found || e.Seq != 2 || e.Err == nil {
		t.Errorf("last: %+v, %v, %v", e, found, err)
	}
}

// A reader of a task's log gets it whole over the broker as well.
func TestLogReplyKeepsEntries(t *testing.T) {
	t.Parallel()
	c := natstest.Run(t)
	id := newTask()
	st := boss.next(t, c, id, tasklog.Submitted, tasklog.State{})
	writer{"web-1", 7}.next(t, c, id, tasklog.Started, st)
	var reply broker.LogReply
	for m, err := range c.Range(t.Context(), subject.TasksStream, subject.Task(id), 1) {
		if err != nil {
			t.Fatal(err)
		}
		reply.Messages = append(reply.Messages, m)
	}
	var back broker.LogReply
	roundTrip(t, reply, &back)
	var entries []tasklog.Entry
	for _, m := range back.Messages {
		entries = append(entries, m.Entry())
	}
	if s := tasklog.Fold(entries); s.Phase != tasklog.PhaseRunning || s.Void != 0 || s.Holder != "web-1" {
		t.Errorf("%+v", s)
	}
}

// A stream that does not answer, as right after the broker's start, is no message without a place.
func TestNobodyAnswersForAStream(t *testing.T) {
	t.Parallel()
	_, c := listening(t)
	for m, err := range c.Range(t.Context(), "NOT_THERE_YET", ">", 1) {
		if !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("Range yields %+v, %v, want that nobody answers", m, err)
		}
	}
}
