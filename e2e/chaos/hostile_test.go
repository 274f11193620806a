//go:build chaos

package chaos

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A stranger speaks to the broker as nobody should: late, twice, and for others.
type stranger struct {
	*process // for its busy alone
	nc       *nats.Conn

	mu   sync.Mutex
	seen []broker.Msg // entries of late
}

// memory is how many entries a stranger remembers.
const memory = 200

func (s *site) newStranger() *stranger {
	s.Helper()
	nc, err := nats.Connect(s.brokerURL, nats.Name("stranger"), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(nc.Close)
	return &stranger{process: s.process("stranger", nil, nil), nc: nc}
}

func (h *stranger) remember(m broker.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen = append(h.seen, m); len(h.seen) > memory {
		h.seen = h.seen[1:]
	}
}

// some picks a few of the entries that it remembers.
func (h *stranger) some(r *rand.Rand) (picked []broker.Msg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range min(len(h.seen), 1+r.IntN(8)) {
		picked = append(picked, h.seen[r.IntN(len(h.seen))])
	}
	return picked
}

// answers acknowledges requests that others have in hand, hands them back, or claims to work on them. Any of these may
// be on its way from a holder that lost the task long ago.
func (h *stranger) answers(r *rand.Rand, _ *process) (func(), time.Duration, bool) {
	words := []string{"+ACK", "-NAK", "-NAK", "-NAK {\"delay\": 300000000}", "+WPI", "+TERM"}
	sent := false
	for _, m := range h.some(r) {
		p, ok := subject.Parse(m.Subject)
		if !ok || p.Verb != "request" {
			continue
		}
		consumer := subject.TypeConsumer(p.Type, p.Priority)
		if p.Target != subject.Any {
			consumer = subject.AgentConsumer(subject.AgentID(p.Target), p.Priority)
		}
		to := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.1.%d.0", subject.TasksStream, consumer, m.Seq, m.Time.UnixNano())
		for range 1 + r.IntN(3) {
			sent = h.nc.Publish(to, []byte(words[r.IntN(len(words))])) == nil || sent
		}
	}
	return nil, 0, sent
}

// repeats sends entries again as they were sent: copies that were long on their way.
func (h *stranger) repeats(r *rand.Rand, _ *process) (func(), time.Duration, bool) {
	sent := false
	for _, m := range h.some(r) {
		sent = h.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}) == nil || sent
	}
	return nil, 0, sent
}

// forges puts old entries behind whatever stands there: they do not count, and move the tail.
func (h *stranger) forges(r *rand.Rand, _ *process) (func(), time.Duration, bool) {
	picked := h.some(r)
	if len(picked) == 0 {
		return nil, 0, false
	}
	header := nats.Header{}
	for name, values := range picked[0].Header {
		if name != tasklog.HeaderExpect && name != tasklog.HeaderExpectSubject {
			header[name] = values
		}
	}
	return nil, 0, h.nc.PublishMsg(&nats.Msg{Subject: picked[0].Subject, Header: header, Data: picked[0].Data}) == nil
}
