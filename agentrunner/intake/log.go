package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// foldPatience is how long a refused start waits for a page of the task's log. Nothing is lost when none comes: the
// request comes again.
const foldPatience = 10 * time.Second

// Pauses between two tries of what must come through: the usual one, and the longest for what loads the orchestrator.
const (
	retryEvery = 500 * time.Millisecond
	askSlowly  = 10 * time.Second
)

// errNotShown says that the orchestrator refuses to show a task's log, and would on a second try.
var errNotShown = errors.New("the orchestrator does not show the task")

// history learns from the log what earlier attempts have fixed: how many are allowed, and when the first began.
func (i *Intake) history(ctx context.Context, s *slot, j *job) {
	j.began = time.Now()
	if s.attempt == 1 {
		return
	}
	if x := j.entry.Message.Custom.Chiffon; x != nil && x.Attempts > 0 {
		s.record.Allowed = x.Attempts
	}
	var st tasklog.State
	var first, own time.Time // both times are the broker's
	err := i.read(ctx, s, foldPatience/2, func(e tasklog.Entry) {
		var void error
		if st, void = st.Next(e); void != nil || e.Kind != tasklog.Started {
			return
		}
		if first.IsZero() {
			first = e.Time
		}
		if e.Seq == s.record.Started {
			own = e.Time
		}
	})
	if err != nil {
		s.log.Warn("earlier attempts are not known", "error", err)
		return
	}
	if !own.IsZero() {
		j.began = j.began.Add(first.Sub(own))
	}
	if st.Allowed > 0 {
		s.record.Allowed = st.Allowed
	}
}

// fold asks until it knows what the task's log adds up to, or ctx ends. A task that the orchestrator refuses to show
// has no log for us.
func (i *Intake) fold(ctx context.Context, s *slot) (tasklog.State, error) {
	return i.foldWithin(ctx, s, 0)
}

// foldSoon gives up when a page does not come within foldPatience.
func (i *Intake) foldSoon(ctx context.Context, s *slot) (tasklog.State, error) {
	return i.foldWithin(ctx, s, foldPatience)
}

func (i *Intake) foldWithin(ctx context.Context, s *slot, patience time.Duration) (st tasklog.State, err error) {
	err = i.read(ctx, s, patience, func(e tasklog.Entry) { st, _ = st.Next(e) })
	if errors.Is(err, errNotShown) {
		s.log.Warn("task has no log for this agent", "error", err)
		return tasklog.State{}, nil
	}
	return st, err
}

// read hands the log of a task to each, entry by entry; nothing of it is kept, for anybody may make a log long. Each
// page is asked for until it comes or ctx ends, or, unless patience is 0, has not come within that. The error is
// errNotShown when the orchestrator refuses.
func (i *Intake) read(ctx context.Context, s *slot, patience time.Duration, each func(tasklog.Entry)) error {
	for from := uint64(1); from > 0; {
		page, err := i.page(ctx, s, from, patience)
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			if m.Seq >= from { // or it was on an earlier page
				each(m.Entry())
			}
		}
		from = page.Next
	}
	return nil
}

// page asks for one page of a log, less and less often.
func (i *Intake) page(ctx context.Context, s *slot, from uint64, patience time.Duration) (broker.LogReply, error) {
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	question, err := json.Marshal(struct {
		Task subject.TaskID `json:"task_id"`
		From uint64         `json:"from"`
	}{s.task, from})
	if err != nil {
		return broker.LogReply{}, err
	}
	for pause := retryEvery; ; pause = min(2*pause, askSlowly) {
		answer, err := i.cfg.Broker.Request(ctx, subject.Call(i.cfg.Agent, "get"), question)
		var r broker.LogReply
		if err == nil {
			err = json.Unmarshal(answer, &r)
		}
		switch {
		case err != nil:
		case r.Error != nil && !r.Error.Code.Retryable():
			return r, fmt.Errorf("%w: %w", errNotShown, r.Error.Fault())
		case r.Error != nil:
			err = r.Error.Fault()
		case r.Next > 0 && r.Next <= from:
			err = fmt.Errorf("the page from entry %d is followed by that from entry %d", from, r.Next)
		default:
			return r, nil
		}
		if ctx.Err() == nil && i.unshown.due(time.Minute) {
			s.log.Warn("the orchestrator does not tell the log of the task; it is asked again", "error", err)
		}
		if !sleep(ctx, pause) {
			return r, err
		}
	}
}

// A seldom keeps what may happen very often from filling the program's log. Its zero value is ready.
type seldom struct {
	mu   sync.Mutex
	last time.Time
}

// due says whether it is time to say it again.
func (s *seldom) due(every time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && time.Since(s.last) < every {
		return false
	}
	s.last = time.Now()
	return true
}
