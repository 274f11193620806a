package intake

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/cut"
)

// A reply is what becomes of a message that holds a request.
type reply int

const (
	replyTaken reply = iota // the attempt answers it
	replyAck                // it is of no use any more
	replyBack               // at once to somebody else
	replyLater              // to somebody else, or to us in a second
)

// widest is how many requests are asked for at once at most.
const widest = 256

// later is how long a request stays away that nobody here can begin now.
const later = time.Second

// A puller asks the consumers for requests, first served first. One goroutine has it.
type puller struct {
	i        *Intake
	handles  map[string]jetstream.Consumer
	waiting  map[string]bool // a request for work stands at the broker
	missing  map[string]bool // until the next heartbeat
	told     int
	wide     int // how many requests are asked for at once while none of them can be begun
	arrivals chan arrival
	gone     chan struct{}
}

// An arrival is what came of a waiting request for work: a message, or nothing.
type arrival struct {
	consumer string
	msg      jetstream.Msg
	err      error
}

// pull takes requests until ctx ends; what it begins may go on until log ends.
func (i *Intake) pull(ctx, log context.Context) {
	p := &puller{
		i: i, handles: map[string]jetstream.Consumer{}, waiting: map[string]bool{}, missing: map[string]bool{},
		arrivals: make(chan arrival), gone: make(chan struct{}),
	}
	defer close(p.gone)
	for ctx.Err() == nil {
		free, consumers, told := i.free()
		if told != p.told {
			p.told = told
			clear(p.missing)
		}
		if free > 0 && i.cfg.Broker.Connected() {
			if p.scan(ctx, log, consumers, free) {
				continue
			}
			p.wait(ctx, consumers)
		}
		select {
		case <-ctx.Done():
		case <-i.changed:
		case a := <-p.arrivals:
			p.take(log, consumers, a)
		}
	}
}

// scan takes what is there from the first consumer that has something. One with a waiting request has nothing: that
// request would have got it.
func (p *puller) scan(ctx, log context.Context, consumers []string, free int) bool {
	for _, name := range consumers {
		if p.waiting[name] {
			continue
		}
		c := p.handle(ctx, name)
		if c == nil {
			continue
		}
		batch, err := c.FetchNoWait(max(free, p.wide))
		if err != nil {
			p.lose(name, err)
			continue
		}
		any, began := false, false
		for m := range batch.Messages() {
			any = true
			began = p.i.deliver(log, m) || began
		}
		if err := batch.Error(); err != nil {
			p.lose(name, err)
		}
		if any {
			if began {
				p.wide = 0
			} else { // there may be many more like these, and something else behind them
				p.wide = min(2*max(p.wide, free), widest)
			}
			return true
		}
	}
	return false
}

// wait leaves one request for work at each consumer. It is never taken back: the broker would hand out a message to
// nobody. What comes when no slot is free any more is handed back.
func (p *puller) wait(ctx context.Context, consumers []string) {
	for _, name := range consumers {
		c := p.handle(ctx, name)
		if c == nil || p.waiting[name] {
			continue
		}
		batch, err := c.Fetch(1, jetstream.FetchMaxWait(p.i.cfg.Pull))
		if err != nil {
			p.lose(name, err)
			continue
		}
		p.waiting[name] = true
		go func() { // ends with the request, after cfg.Pull at the latest
			m := <-batch.Messages()
			select {
			case p.arrivals <- arrival{name, m, batch.Error()}:
			case <-p.gone:
				if m != nil {
					p.i.answer(m, replyBack)
				}
			}
		}()
	}
}

// take gives what has arrived to the free slots, first served first, and the rest back, lowest first. Handing back
// needs no delay: each time uses up a waiting request.
func (p *puller) take(log context.Context, consumers []string, first arrival) {
	all := []arrival{first}
	for more := true; more; {
		select {
		case a := <-p.arrivals:
			all = append(all, a)
		default:
			more = false
		}
	}
	slices.SortStableFunc(all, func(a, b arrival) int {
		return slices.Index(consumers, a.consumer) - slices.Index(consumers, b.consumer)
	})
	var back []jetstream.Msg
	for _, a := range all {
		delete(p.waiting, a.consumer)
		if a.err != nil {
			p.lose(a.consumer, a.err)
		}
		if a.msg == nil {
			continue
		}
		if free, _, _ := p.i.free(); free == 0 {
			back = append(back, a.msg)
			continue
		}
		p.i.deliver(log, a.msg)
	}
	for _, m := range slices.Backward(back) {
		p.i.answer(m, replyBack)
	}
}

// handle finds a consumer; nil while there is none.
func (p *puller) handle(ctx context.Context, name string) jetstream.Consumer {
	if c := p.handles[name]; c != nil || p.missing[name] {
		return c
	}
	c, err := p.i.cfg.Broker.Consumer(ctx, name)
	if err != nil {
		p.lose(name, err)
		return nil
	}
	p.handles[name] = c
	return c
}

// lose leaves a consumer alone until the next heartbeat.
func (p *puller) lose(name string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	delete(p.handles, name)
	p.missing[name] = true
	p.i.cfg.Log.Debug("consumer gives nothing", "consumer", name, "error", err)
}

// answer tells the broker what became of a message. A lost answer only brings the message again.
func (i *Intake) answer(m jetstream.Msg, r reply) {
	cut.Before("answer", "request")
	defer cut.After("answer", "request")
	var err error
	switch r {
	case replyTaken:
	case replyAck:
		err = m.Ack()
	case replyBack:
		err = m.Nak()
	case replyLater:
		err = m.NakWithDelay(later)
	}
	if err != nil {
		i.cfg.Log.Debug("request is not answered", "subject", m.Subject(), "error", err)
	}
}
