package child

import "time"

// lastNews is how long the news of a supervisor that has ended are still read: they lie in the pipe by then, and a
// program that holds the pipe open has nothing to say.
const lastNews = 2 * time.Second

// How long after a tree should have been gone its supervisor is no longer relied on: one that is found stopped or traced,
// and one that runs. A program may do the former to it, and take its orders away; but it may also have much to kill.
const (
	overdue = 2 * time.Second
	tooLate = 15 * time.Second
)

// expect notes that nothing of the tree is to be left after d.
func (p *Process) expect(by *time.Time, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*by = time.Now().Add(d)
	p.late.Reset(time.Until(p.due()) + overdue)
}

// due is when nothing of the tree may be left. There must be such a moment.
func (p *Process) due() (first time.Time) {
	for _, by := range []time.Time{p.stopBy, p.endBy, p.overBy} {
		if !by.IsZero() && (first.IsZero() || by.Before(first)) {
			first = by
		}
	}
	return first
}

// takeOver kills a supervisor that has not done what it was told; then the tree is ended as that of any supervisor that
// has died.
func (p *Process) takeOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return // it has ended
	}
	past := time.Since(p.due())
	if past < overdue {
		p.late.Reset(overdue - past)
		return
	}
	if s, ok := readStat(p.supervisor.Process.Pid); past < tooLate && ok && !s.stopped {
		p.late.Reset(overdue / 4)
		return
	}
	p.supervisor.Process.Kill()
}
