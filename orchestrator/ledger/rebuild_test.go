package ledger_test

import (
	"flag"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/message"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"

	"github.com/nats-io/nats.go"

	"chiffon/pkg/broker"
)

var rebuildTasks = flag.Int("rebuild.tasks", 100_000, "ended tasks that BenchmarkRebuild folds")

// BenchmarkRebuild is how long an orchestrator takes to be ready: it folds that many ended tasks, of three entries
// each, out of the broker's store.
func BenchmarkRebuild(b *testing.B) {
	s, c := natstest.Start(b, broker.ServerConfig{Dir: b.TempDir(), Relaxed: true, Listen: "127.0.0.1:0"})
	fill(b, s.URL(), *rebuildTasks)
	w := &world{TB: b, Client: c}
	for b.Loop() {
		l, stop := w.run(ledger.New(c, natstest.Log(b)))
		for {
			if loading, _, _ := l.Loading(); !loading {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		b.StopTimer()
		if ended := len(l.EndedBefore(time.Now().Add(time.Hour), *rebuildTasks+1)); ended != *rebuildTasks {
			b.Fatalf("%d tasks have ended, want %d", ended, *rebuildTasks)
		}
		stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(*rebuildTasks)*float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// fill stores tasks that have ended, without waiting for each entry.
func fill(b *testing.B, url string, n int) {
	b.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream(nats.PublishAsyncMaxPending(1024))
	if err != nil {
		b.Fatal(err)
	}
	seq := uint64(0)
	put := func(d tasklog.Draft, err error) func(attempt int, boot uint64) {
		return func(attempt int, boot uint64) {
			tail := seq
			if d.Kind == tasklog.Submitted {
				tail = 0
			}
			if err == nil {
				m := &nats.Msg{Subject: d.Subject, Header: nats.Header(d.At(tail, attempt, boot).Header()), Data: d.Data}
				_, err = js.PublishMsgAsync(m)
			}
			if err != nil {
				b.Fatal(err)
			}
			seq++
		}
	}
	for range n {
		id := subject.TaskID(message.NewUUID())
		r := message.New(subject.Orchestrator, "infra", message.NewUUID(), message.NewUUID(), message.WorkRequest{
			TaskID: id, WorkType: "survey_host", Parameters: []byte(`{"depth":1,"hosts":["a","b"]}`),
		})
		r.Custom.Chiffon = &message.Extension{SubmittedBy: "admin", Digest: "0123456789abcdef", Labels: map[string]string{"env": "test"}}
		put(tasklog.Write(tasklog.Submitted, id, subject.Request(id, "infra", subject.Any, subject.Normal), r))(0, 0)
		st := from(message.WorkStatus{TaskID: id, Status: message.StatusRunning}, &message.Extension{Attempt: 1, Attempts: 4})
		put(tasklog.Write(tasklog.Started, id, subject.Event(id, "a"), st))(1, 7)
		end := from(message.WorkResult{TaskID: id, Status: message.ResultSuccess, Output: "done\n", ResourcesUsed: &message.ResourcesUsed{DurationSeconds: 1, CPUTimeMS: 12}},
			&message.Extension{StatusCount: 3})
		put(tasklog.Write(tasklog.Succeeded, id, subject.Event(id, "a"), end))(1, 7)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(5 * time.Minute):
		b.Fatal("entries are not stored")
	}
}
