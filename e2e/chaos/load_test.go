//go:build chaos

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// A submission is what a client asked for, and was told.
type submission struct {
	client.Submission
	once bool
}

// Load: as many clients submit, and at most so many tasks are open.
const (
	clients = 6
	maxOpen = 60
)

// submit puts in tasks until ctx ends. A submission is repeated with the same request_id, anywhere, until it is
// accepted; one in hand is seen through.
func (s *site) submit(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	for pause(ctx, time.Duration(r.IntN(120))*time.Millisecond) {
		s.mu.Lock()
		room := s.openTasks < maxOpen
		s.mu.Unlock()
		if room {
			s.hand(r, s.order(r))
		}
	}
}

// order makes up some work.
func (s *site) order(r *rand.Rand) client.Submission {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	ms, exit := 5+r.IntN(100), 0
	if r.IntN(4) == 0 {
		ms = 300 + r.IntN(2500)
	}
	if r.IntN(10) == 0 {
		exit = 1 + r.IntN(100)
	}
	params, _ := json.Marshal(map[string]any{"ms": ms, "exit": exit, "mode": pick("plain", "plain", "plain", "far", "deaf")})
	o := client.Submission{
		AgentType: "infra", WorkType: pick("often", "often", "once"), Parameters: params,
		Priority: pick("critical", "high", "normal", "normal", "normal", "low"), RequestID: string(message.NewUUID()),
	}
	switch r.IntN(15) {
	case 0, 1:
		o.Agent = agent(r.IntN(runners))
	case 2:
		o.On = map[string]string{"place": agent(r.IntN(runners))}
	case 3:
		o.QueueTimeout = 3 + r.IntN(10)
	case 4:
		o.Hints = &view.Hints{MaxDurationSeconds: 1}
	}
	return o
}

// hand sees a submission through.
func (s *site) hand(r *rand.Rand, o client.Submission) {
	id := s.idOf(o.RequestID)
	s.mu.Lock()
	s.tried[id] = true
	s.mu.Unlock()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
		api := s.api(r.IntN(len(s.urls)))
		if api == nil {
			pause(context.Background(), 100*time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		task, known, err := api.Submit(ctx, o)
		cancel()
		if err == nil {
			if task.TaskID != string(id) {
				s.wrong("request %s became task %s, want %s", o.RequestID, task.TaskID, id)
			}
			s.took(task.TaskID, o)
			s.count("submissions accepted")
			if known {
				s.count("submissions found accepted when repeated")
			}
			return
		}
		if p, ok := errors.AsType[*client.Problem](err); ok && p.Status == http.StatusUnprocessableEntity && !passing(p) {
			s.wrong("submission %+v is refused: %v", o, err)
			return
		}
		s.count("submissions repeated")
		pause(context.Background(), 50*time.Millisecond)
	}
	s.wrong("request %s is not accepted in 5 minutes", o.RequestID)
}

// passing says of a refusal whether it comes from an orchestrator that has not heard the agents yet.
func passing(p *client.Problem) bool { return p.ErrorCode != 0 && p.ErrorCode != 5003 }

func (s *site) took(id string, o client.Submission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted[id] = &submission{Submission: o, once: o.WorkType == "once"}
	s.recent = append(s.recent, id)
	if len(s.recent) > 40 {
		s.recent = s.recent[1:]
	}
}

// cancel stops some tasks until ctx ends: of what is told it is over, nothing may run.
func (s *site) cancel(ctx context.Context, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	for pause(ctx, time.Duration(200+r.IntN(600))*time.Millisecond) {
		s.mu.Lock()
		id := ""
		if len(s.recent) > 0 {
			id = s.recent[r.IntN(len(s.recent))]
		}
		s.mu.Unlock()
		which := r.IntN(len(s.urls))
		api := s.api(which)
		if id == "" || api == nil {
			continue
		}
		call, stop := context.WithTimeout(ctx, 4*time.Second)
		how := client.Cancellation{Reason: "the suite says so", GraceSeconds: r.IntN(3)}
		if how.Force = r.IntN(6) == 0; how.Force {
			s.count("forced cancels")
		}
		asked := time.Now()
		task, _, err := api.Cancel(call, id, how)
		stop()
		s.count("cancels")
		if err == nil {
			s.viewed(which, asked, task.Task)
		}
	}
}

// watch asks an orchestrator for its newest tasks, again and again until ctx ends.
func (s *site) watch(ctx context.Context, which int) {
	for pause(ctx, 250*time.Millisecond) {
		api := s.api(which)
		if api == nil {
			continue
		}
		call, stop := context.WithTimeout(ctx, 4*time.Second)
		asked := time.Now()
		page, err := api.Page(call, client.TaskQuery{Limit: 150})
		stop()
		if err != nil {
			s.count("views not to be had")
			continue
		}
		s.count("views")
		for _, t := range page.Tasks {
			s.viewed(which, asked, t.Task)
		}
	}
}

// A glance is what a view said of a task.
type glance struct {
	state   string    // an end that was shown, or ""
	attempt int       // the highest that was shown
	agent   string    // that had it
	end     time.Time // by the log, once that is known
}

// maxLag is how long a view may show what is over: its orchestrator and the broker are stopped or away again and again.
const maxLag = 45 * time.Second

// viewed takes note of what a view says. Whatever showed an end has to go on showing that very end.
func (s *site) viewed(which int, asked time.Time, t view.Task) {
	id := subject.TaskID(t.TaskID)
	s.mu.Lock()
	g := s.glances[id]
	was := g.state
	if t.Attempt > g.attempt {
		g.attempt, g.agent = t.Attempt, t.AgentID
	}
	if view.Ended(t.State) {
		g.state = t.State
	}
	s.glances[id] = g
	lag := time.Duration(0)
	if !g.end.IsZero() && !view.Ended(t.State) {
		lag = asked.Sub(g.end)
		s.lag = max(s.lag, lag)
	}
	s.mu.Unlock()
	if lag > maxLag {
		s.wrong("task %s: %s shows it as %s, %v after its end", id, s.orchestrators[which].name, t.State, lag)
	}
	if was != "" && view.Ended(t.State) && t.State != was {
		s.wrong("task %s: %s shows the end %s, and %s was shown before", id, s.orchestrators[which].name, t.State, was)
	}
}
