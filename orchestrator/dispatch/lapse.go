package dispatch

import (
	"sync"
	"time"

	"chiffon/pkg/fault"
	"chiffon/pkg/subject"
)

// A lapse is that an agent did not start a task which was put to it.
type lapse struct {
	times int
	until time.Time  // it is not tried again before
	code  fault.Code // why it has refused it; 0 when it has said nothing
}

// longestBackoff bounds how long an agent is not tried again with a task.
const longestBackoff = 10 * time.Minute

// lapses remembers them by task, until the task runs: another process does not know of them, and tries again.
type lapses struct {
	mu sync.Mutex
	of map[subject.TaskID]map[subject.AgentID]lapse
}

// note counts one more, after which the agent is not tried for a while, then for twice as long. code says why the
// agent has refused it, or is 0.
func (l *lapses) note(id subject.TaskID, agent subject.AgentID, now time.Time, wait time.Duration, code fault.Code) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[subject.TaskID]map[subject.AgentID]lapse{}
	}
	if l.of[id] == nil {
		l.of[id] = map[subject.AgentID]lapse{}
	}
	was := l.of[id][agent]
	wait = min(longestBackoff, wait<<min(was.times, 10))
	l.of[id][agent] = lapse{times: was.times + 1, until: now.Add(wait), code: code}
}

func (l *lapses) get(id subject.TaskID, agent subject.AgentID) lapse {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[id][agent]
}

func (l *lapses) forget(id subject.TaskID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, id)
}

// Lapsed tells how often an agent did not start a task that was put to it, and before when it is not tried again.
// Both are forgotten once the task begins.
func (d *Dispatcher) Lapsed(id subject.TaskID, agent subject.AgentID) (times int, until time.Time) {
	l := d.lapses.get(id, agent)
	return l.times, l.until
}
