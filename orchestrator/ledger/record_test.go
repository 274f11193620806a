package ledger_test

import (
	"strings"
	"testing"
	"time"

	"chiffon/orchestrator/ledger"
	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

// A ledger that cannot read the record, as when the broker goes right then, tries again.
func TestRecordIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit(order{})
	w.start(id, 1)
	if _, err := w.Request(t.Context(), "$JS.API.STREAM.DELETE."+subject.AuditStream, nil); err != nil {
		t.Fatal(err)
	}
	l, _ := w.run(ledger.New(w.Client, natstest.Log(t)))
	w.folded(l)
	if err := w.Ensure(t.Context(), broker.DefaultLimits, 1); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; {
		w.status(id, 1, 30, 1)
		task, _ := l.Get(id)
		if task.Percent == 30 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("progress is %d, want 30", task.Percent)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// A ledger that begins while the broker does not answer begins when it does.
func TestBeginsWhenTheBrokerAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, c := natstest.Start(t, broker.ServerConfig{Dir: dir, Listen: "127.0.0.1:0"})
	far := natstest.Connect(t, broker.Config{URL: s.URL(), Timeout: 200 * time.Millisecond})
	w := &world{TB: t, Client: c}
	id := w.submit(order{})
	listen := strings.TrimPrefix(s.URL(), "nats://")
	c.Close()
	s.Stop()
	l, _ := w.run(ledger.New(far, natstest.Log(t))) // which fails the test when it ends with an error
	<-time.After(time.Second)
	natstest.Start(t, broker.ServerConfig{Dir: dir, Listen: listen})
	for end := time.Now().Add(patience); ; <-time.After(20 * time.Millisecond) {
		if _, ok := l.Get(id); ok {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the task is not folded")
		}
	}
}
