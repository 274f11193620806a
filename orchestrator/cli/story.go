package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"sync"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
)

// A teller shows a task's story as it happens: as progress, as output, or as JSON lines.
type teller interface {
	event(client.Event) error
	note(text string) // something is to be known: why it has not begun, or that the connection is lost
	tick()            // time has passed
}

const (
	frameTime = 100 * time.Millisecond // of the live progress line
	askAgain  = 10 * time.Second       // why a task does not begin
)

// story tells t everything that happens to a task until its end, and returns it as it ended. Once a task has not begun for a while
// it asks why; and whether the runner of one that has begun still gives a sign of life. The error is the client's, t's or the context's.
func (p *program) story(ctx context.Context, c *client.Client, id string, t teller) (task client.Task, err error) {
	type arrival struct {
		event client.Event
		err   error
		lost  bool // not the end: err broke the stream, which is taken up again
	}
	arrivals := make(chan arrival)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		defer close(arrivals)
		send := func(a arrival) {
			select {
			case arrivals <- a:
			case <-ctx.Done():
			}
		}
		broke := func(err error, wait time.Duration) {
			if wait >= time.Second { // most come back before anybody has read this
				send(arrival{err: err, lost: true})
			}
		}
		for e, err := range c.Events(ctx, id, client.EventQuery{Follow: true, Lost: broke}) {
			send(arrival{event: e, err: err})
		}
	})
	frames := time.NewTicker(frameTime)
	defer frames.Stop()
	why := time.NewTimer(p.curious)
	defer why.Stop()
	begun, lost, reason := false, false, ""
	var silent silences
	for {
		select {
		case a, open := <-arrivals:
			if !open {
				return client.Task{}, context.Cause(ctx)
			}
			if a.lost {
				if !lost {
					t.note(a.err.Error() + "; trying again")
				}
				lost = true // one word is enough for one outage
				continue
			}
			lost = false
			if a.err != nil {
				return client.Task{}, a.err
			}
			if err := t.event(a.event); err != nil {
				return client.Task{}, err
			}
			if task, ok := a.event.Ended(); ok {
				return task, nil
			}
			begun = a.event.Kind == "started" && a.event.Void == "" || begun && a.event.Kind != "queued"
		case <-frames.C:
			t.tick()
		case <-why.C:
			why.Reset(askAgain)
			now, err := c.Task(ctx, id)
			if err != nil {
				continue
			}
			if news := silent.news(p, now); news != "" {
				t.note(news)
			}
			if !begun && now.WaitingFor != "" && now.WaitingFor != reason {
				reason = now.WaitingFor
				t.note("waiting for " + reason)
			}
		}
	}
}

// eventLines prints every event as the API sent it.
type eventLines struct{ p *program }

func (l eventLines) event(e client.Event) error { return l.p.out.jsonLine(e) }
func (l eventLines) note(text string)           { l.p.talk.say("%s", visible(text)) }
func (eventLines) tick()                        {}

// messageOf is the protocol message in an event; nil when it has none or one that can't be read.
func messageOf(e client.Event) *message.Any {
	if len(e.Message) == 0 {
		return nil
	}
	m, err := message.Read(e.Message)
	if err != nil {
		return nil
	}
	return &m
}

func stepOf(e client.Event) *message.Step {
	if m := messageOf(e); m != nil && m.Status != nil {
		return m.Status.Step
	}
	return nil
}

func gapText(e client.Event) string {
	return fmt.Sprintf("--- %d status messages are not kept any more ---", e.Missing)
}

// resultBytes is the output of a result as the task wrote it.
func resultBytes(r *view.Result) ([]byte, error) {
	if r.OutputEncoding == "base64" {
		return base64.StdEncoding.DecodeString(r.Output)
	}
	return []byte(r.Output), nil
}
