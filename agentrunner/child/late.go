package child

import "time"

// lastNews is how long the news of a supervisor that has ended are still read: they lie in the pipe by then, and a
// program that holds the pipe open has nothing to say.
const lastNews = 2 * time.Second

// overdue is how long after a tree should have been gone its supervisor is no longer relied on. A program may stop or
// trace its supervisor, or take its orders away.
const overdue = 2 * time.Second

// expect notes that nothing of the tree is to be left after d.
func (p *Process) expect(by *time.Time, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*by = time.Now().Add(d)
	p.late.Reset(time.Until(p.due()))
}

// due is when this process ends the tree itself. There must be such a moment.
func (p *Process) due() (first time.Time) {
	for _, by := range []time.Time{p.stopBy, p.endBy, p.overBy} {
		if !by.IsZero() && (first.IsZero() || by.Before(first)) {
			first = by
		}
	}
	return first.Add(overdue)
}

// takeOver kills a supervisor that has not done what it was told; then the tree is ended as that of any supervisor that
// has died.
func (p *Process) takeOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return // it has ended
	}
	if left := time.Until(p.due()); left > 0 {
		p.late.Reset(left)
		return
	}
	p.supervisor.Process.Kill()
}
