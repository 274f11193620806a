package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/natstest"
	"chiffon/pkg/subject"
)

func TestServe(t *testing.T) {
	t.Parallel()
	s, c := listening(t)
	agent := natstest.Connect(t, broker.Config{URL: s.URL(), Timeout: 5 * time.Second})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	heard := make(chan string, 10)
	go func() {
		ended <- c.Serve(ctx, subject.AllCalls, func(_ context.Context, subj string, data []byte) []byte {
			heard <- subj
			if subject.VerbOf(subj) == "silence" {
				return nil
			}
			return append([]byte("re: "), data...)
		})
	}()
	question := subject.Call("web-1", "get")
	for { // until it listens
		answer, err := agent.Request(t.Context(), question, []byte("hello"))
		if broker.NobodyAnswers(err) {
			continue
		}
		if err != nil || string(answer) != "re: hello" {
			t.Fatalf("%q, %v", answer, err)
		}
		break
	}
	if got := <-heard; got != question {
		t.Errorf("asked on %s", got)
	}
	if err := agent.Publish(question, []byte("no reply wanted")); err != nil {
		t.Error(err)
	}
	<-heard
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := agent.Request(short, subject.Call("web-1", "silence"), nil); !errors.Is(err, context.DeadlineExceeded) || broker.NobodyAnswers(err) {
		t.Errorf("no answer: %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve ends with %v", err)
	}
	for { // the server hears of it a little later
		_, err := agent.Request(t.Context(), question, nil)
		if broker.NobodyAnswers(err) {
			break
		}
		if err == nil {
			t.Fatal("it answers on")
		}
	}
}

// A handler that is slow makes others wait; what it cannot take is dropped, said in the log, and ends nothing.
func TestServeSlowly(t *testing.T) {
	t.Parallel()
	s, _ := listening(t)
	lines := newLines()
	c := natstest.Connect(t, broker.Config{URL: s.URL(), Log: lines.log()})
	agent := natstest.Connect(t, broker.Config{URL: s.URL(), Timeout: 200 * time.Millisecond})
	busy, goOn := make(chan struct{}), make(chan struct{})
	first := true
	go func() {
		err := c.Serve(t.Context(), "chiffon.test.slow", func(_ context.Context, _ string, data []byte) []byte {
			if first {
				first = false
				close(busy)
				<-goOn
			}
			return data
		})
		if err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	for open := true; open; {
		if err := agent.Publish("chiffon.test.slow", nil); err != nil {
			t.Fatal(err)
		}
		select {
		case <-busy:
			open = false
		default:
		}
	}
	for range 6000 { // more than it keeps
		if err := agent.Publish("chiffon.test.slow", nil); err != nil {
			t.Fatal(err)
		}
	}
	lines.wait(t, "slow consumer")
	close(goOn)
	// What still finds the buffer full is dropped too: who asks, asks again.
	for {
		answer, err := agent.Request(t.Context(), "chiffon.test.slow", []byte("and now?"))
		if errors.Is(err, context.DeadlineExceeded) && t.Context().Err() == nil {
			continue
		}
		if err != nil || string(answer) != "and now?" {
			t.Errorf("%q, %v", answer, err)
		}
		return
	}
}

func TestSend(t *testing.T) {
	t.Parallel()
	s, c := listening(t)
	p := newProxy(t, s.URL())
	far := natstest.Connect(t, broker.Config{URL: p.url(), Timeout: 100 * time.Millisecond})
	subj := subject.Status(newTask(), "web-1")
	fill(t, far, subj, 0, 1, 0)
	p.silence()
	r, err := far.Send(subj, []byte("1 "))
	if err != nil {
		t.Fatal(err)
	}
	for m, err := range c.Tail(t.Context(), subject.StatusStream, 2) {
		if err != nil || numberOf(m) != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		break
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := r.Wait(ctx); !errors.Is(err, enough) {
		t.Errorf("wait with an ended context: %v", err)
	}
	if err := r.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), subj) { // its reply never comes: it ends by itself
		t.Errorf("wait for a reply that was lost: %v", err)
	}
	p.cut()
	sure(t, far, subj, 2)
	if r, err = far.Send("chiffon.test.nobody.keeps.this", nil); err == nil {
		err = r.Wait(t.Context())
	}
	if err == nil {
		t.Error("what no stream keeps is stored")
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	if _, err := broker.Connect(broker.Config{URL: "nats://127.0.0.1:1", Timeout: time.Second}); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "NATS_URL") {
		t.Errorf("nobody there: %v", err)
	}
	s, c := listening(t)
	if !c.Connected() || c.ServerVersion() == "" || c.MaxPayload() != broker.MaxPayload {
		t.Errorf("connected %v to %q, payload %d", c.Connected(), c.ServerVersion(), c.MaxPayload())
	}
	s.Stop()
	c.Close()
	if c.Connected() {
		t.Error("a closed connection is connected")
	}
	if err := c.Publish("chiffon.test", nil); err == nil {
		t.Error("a closed connection publishes")
	}
}

// Who asks for more than a message can hold is told so: else it would ask for ever.
func TestServeExcusesItself(t *testing.T) {
	t.Parallel()
	s, c := listening(t)
	agent := natstest.Connect(t, broker.Config{URL: s.URL(), Timeout: 5 * time.Second})
	go func() {
		_ = c.Serve(t.Context(), subject.AllCalls, func(context.Context, string, []byte) []byte {
			return make([]byte, c.MaxPayload()+1)
		})
	}()
	for {
		answer, err := agent.Request(t.Context(), subject.Call("web-1", "get"), nil)
		if broker.NobodyAnswers(err) {
			continue
		}
		var r broker.LogReply
		if err == nil {
			err = json.Unmarshal(answer, &r)
		}
		if err != nil || r.Error == nil || r.Error.Code != fault.ResourceLimitExceeded {
			t.Errorf("%.100q, %v", answer, err)
		}
		return
	}
}
