//go:build chaos

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/pkg/broker"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// operate is what somebody does who looks after the agents: they are paused, drained and resumed, and what broke is
// let go on before its time.
func (s *site) operate(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 5))
	for pause(ctx, time.Duration(300+r.IntN(1200))*time.Millisecond) {
		a, id := s.api(r.IntN(len(s.urls))), agent(r.IntN(runners))
		if a == nil {
			continue
		}
		s.reset(ctx, a)
		call, stop := context.WithTimeout(ctx, 4*time.Second)
		var err error
		switch r.IntN(4) {
		case 0:
			s.count("pauses")
			_, err = a.PauseAgent(call, id, client.Pause{ForSeconds: 1 + r.IntN(2), Message: "the suite looks"})
		case 1:
			s.count("drains")
			_, err = a.DrainAgent(call, id, client.Drain{DeadlineSeconds: 1, Message: "the suite cleans"})
		default:
			_, err = a.ResumeAgent(call, id)
		}
		stop()
		if p, ok := errors.AsType[*client.Problem](err); ok && p.Status == http.StatusUnprocessableEntity {
			s.wrong("agent %s: %v", id, err)
		}
	}
	s.resume()
}

// reset closes the breakers that are open: the suite has not the time to wait.
func (s *site) reset(ctx context.Context, a *client.Client) {
	call, stop := context.WithTimeout(ctx, 4*time.Second)
	defer stop()
	list, err := a.Breakers(call)
	if err != nil {
		return
	}
	for _, b := range list.Breakers {
		if b.State != "closed" {
			if _, err := a.ResetBreaker(call, b.AgentID); err == nil {
				s.count("breakers reset")
			}
		}
	}
}

// resume lets every agent take work again.
func (s *site) resume() {
	for i := range runners {
		for done := false; !done && s.fine(); {
			ctx, stop := context.WithTimeout(context.Background(), 4*time.Second)
			if a := s.api(0); a != nil {
				s.reset(ctx, a)
				_, err := a.ResumeAgent(ctx, agent(i))
				done = err == nil
			}
			stop()
			pause(context.Background(), 20*time.Millisecond)
		}
	}
}

// histories asks for what the views tell of tasks that ended lately, and finds every entry of their logs in it.
func (b *book) histories(stories []*story) {
	for _, st := range stories {
		a := b.site.api(0)
		told := map[string]string{}
		for cursor, more := "", true; more; {
			ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
			page, err := a.History(ctx, string(st.id), cursor)
			stop()
			if err != nil {
				b.fail(st, "its history is not told: %v", err)
				return
			}
			for _, e := range page.Events {
				seq, _, _ := strings.Cut(e.ID, ".")
				told[seq] = e.Kind
			}
			cursor, more = page.NextCursor, page.NextCursor != ""
		}
		for _, l := range st.lines {
			if _, ok := told[strconv.FormatUint(l.seq, 10)]; !ok {
				b.fail(st, "its history leaves out %d: %s", l.seq, l.text)
				return
			}
		}
		b.site.count("histories read")
	}
}

// lateOnes counts the outcomes that came too late to be recorded.
func (b *book) lateOnes(c *broker.Client) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	told := map[message.UUID]bool{} // a status may be stored twice
	for m, err := range c.Range(ctx, subject.StatusStream, subject.AllStatuses, 1) {
		if err != nil {
			b.site.note("the late outcomes are not counted: %v", err)
			return
		}
		if st, err := message.Decode[message.WorkStatus](m.Data); err == nil && st.Custom.Chiffon != nil && st.Custom.Chiffon.Late {
			told[st.MessageID] = true
		}
	}
	b.late = len(told)
}
