//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A fault is one way to break something. do begins it and returns how to end it, nil when that is not needed, and after
// how long; ok is false when there is nothing to break just now.
type fault struct {
	name   string
	weight int
	victim func(*rand.Rand) *process
	do     func(*rand.Rand, *process) (mend func(), after time.Duration, ok bool)
}

// faults is the whole choice, of what this installation allows. Runners suffer most: an orchestrator that is killed all
// the time never comes to lead, and then little happens.
func (s *site) faults() []fault {
	broker := func(*rand.Rand) *process { return s.broker }
	orchestrator := func(r *rand.Rand) *process { return s.orchestrators[r.IntN(len(s.orchestrators))] }
	runner := func(r *rand.Rand) *process { return s.runners[r.IntN(len(s.runners))] }
	all := []fault{
		{"kill -9 of the broker", 3, broker, s.kill},
		{"kill -9 of an orchestrator", 5, orchestrator, s.kill},
		{"kill -9 of a runner", 22, runner, s.kill},
		{"kill -9 of a runner and its supervisors", 6, runner, s.killWhole},
		{"SIGSTOP of the broker", 1, broker, s.freeze},
		{"SIGSTOP of an orchestrator", 2, orchestrator, s.freeze},
		{"SIGSTOP of a runner", 7, runner, s.freeze},
		{"SIGSTOP of a runner until its work is taken away", 1, runner, s.freezeLong},
		{"SIGSTOP of a supervisor", 8, runner, s.freezeSupervisor},
		{"restart of the broker", 1, broker, s.restart},
		{"restart of an orchestrator", 2, orchestrator, s.restart},
		{"restart of a runner", 6, runner, s.restart},
	}
	if s.stranger != nil {
		stranger := func(*rand.Rand) *process { return s.stranger.process }
		all = append(all,
			fault{"late and forged acknowledgements", 7, stranger, s.stranger.answers},
			fault{"entries sent again", 5, stranger, s.stranger.repeats},
			fault{"entries put behind others", 3, stranger, s.stranger.forges})
	}
	if s.links[0] != nil {
		all = append(all,
			fault{"cut link of a runner", 10, runner, s.cut},
			fault{"cut link of a runner until its work is taken away", 1, runner, s.cutLong})
	}
	if s.disk != "" {
		all = append(all, fault{"full disk of a runner", 3, func(*rand.Rand) *process { return s.runners[runners-1] }, s.fill})
	}
	without := os.Getenv("WITHOUT")
	return slices.DeleteFunc(all, func(f fault) bool { return without != "" && strings.Contains(f.name, without) })
}

// torment causes so many faults, one every 50 to 400 ms, unless something is wrong before. It returns when all are over.
func (s *site) torment(seed uint64, count int) {
	r := rand.New(rand.NewPCG(seed, 1))
	all := s.faults()
	var choice []int
	for i, f := range all {
		for range f.weight {
			choice = append(choice, i)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		select {
		case <-s.alarm:
			stop()
		case <-ctx.Done():
		}
	}()
	var mending sync.WaitGroup
	defer mending.Wait()
	for done, due := 0, true; done < count && (!due || pause(ctx, time.Duration(50+r.IntN(350))*time.Millisecond)) && ctx.Err() == nil; {
		due = false
		// All that chance decides is decided here, whatever comes of it.
		f, own := all[choice[r.IntN(len(choice))]], rand.New(rand.NewPCG(r.Uint64(), 0))
		p := f.victim(own)
		if !p.busy.TryLock() {
			continue // it suffers already: another one
		}
		mend, after, ok := f.do(own, p)
		if !ok {
			p.busy.Unlock()
			continue
		}
		done, due = done+1, true
		s.count("fault: " + f.name)
		s.note("%d %s: %s", done, f.name, p.name)
		mending.Go(func() {
			defer p.busy.Unlock()
			if mend != nil {
				pause(context.Background(), after)
				mend()
				s.note("over: %s: %s", f.name, p.name)
			}
		})
		if done%500 == 0 {
			s.Logf("%s %d faults, %d tasks open", time.Since(s.began).Round(time.Second), done, s.unsettledNow())
		}
	}
}

// short is a time before something starts again.
func short(r *rand.Rand) time.Duration { return time.Duration(r.IntN(300)) * time.Millisecond }

func (s *site) kill(r *rand.Rand, p *process) (func(), time.Duration, bool) {
	gone := p.end(syscall.SIGKILL, short(r))
	return func() { <-gone }, 0, gone != nil
}

// killWhole takes the supervisors with the runner: nobody is left who knows what it ran.
func (s *site) killWhole(r *rand.Rand, p *process) (func(), time.Duration, bool) {
	pid := p.pid()
	if pid == 0 {
		return nil, 0, false
	}
	below := supervisors(pid)
	over := s.excuse(p.name) // until its next life has swept
	gone := p.end(syscall.SIGKILL, short(r))
	for _, sup := range below {
		_ = syscall.Kill(sup, syscall.SIGKILL)
	}
	return func() { <-gone; over() }, 2 * time.Second, gone != nil
}

// beyond is how long something is stopped: longer than a lease, as a rule.
func beyond(r *rand.Rand) time.Duration {
	return lease/2 + time.Duration(r.Int64N(int64(lease*3/2)))
}

func (s *site) freeze(r *rand.Rand, p *process) (func(), time.Duration, bool) {
	return func() { p.signal(syscall.SIGCONT) }, beyond(r), p.signal(syscall.SIGSTOP)
}

// freezeSupervisor stops a supervisor, and with it whoever would end its work.
func (s *site) freezeSupervisor(r *rand.Rand, p *process) (func(), time.Duration, bool) {
	pid := p.pid()
	below := supervisors(pid)
	if pid == 0 || len(below) == 0 {
		return nil, 0, false
	}
	victim := below[r.IntN(len(below))]
	over := s.excuse(p.name)
	if syscall.Kill(victim, syscall.SIGSTOP) != nil {
		over()
		return nil, 0, false
	}
	return func() { _ = syscall.Kill(victim, syscall.SIGCONT); over() }, beyond(r) + lease, true
}

func (s *site) restart(r *rand.Rand, p *process) (func(), time.Duration, bool) {
	gone := p.end(syscall.SIGTERM, short(r))
	return func() {
		select {
		case <-gone:
		case <-time.After(patience):
			s.wrong("%s does not end within %v of SIGTERM", p.name, patience)
			p.end(syscall.SIGKILL, 0)
		}
	}, 0, gone != nil
}

func (s *site) cut(r *rand.Rand, p *process) (func(), time.Duration, bool) {
	l := s.links[indexOf(s.runners, p)]
	l.set(s, false)
	return func() { l.set(s, true) }, time.Duration(100+r.IntN(4900)) * time.Millisecond, true
}

// long is how long a runner is away until its work is taken from it for silence, and some of it begun elsewhere.
func long(r *rand.Rand) time.Duration {
	return 13*time.Second + time.Duration(r.IntN(12000))*time.Millisecond
}

func (s *site) freezeLong(r *rand.Rand, p *process) (func(), time.Duration, bool) {
	mend, _, ok := s.freeze(r, p)
	return mend, long(r), ok
}

func (s *site) cutLong(r *rand.Rand, p *process) (func(), time.Duration, bool) {
	mend, _, ok := s.cut(r, p)
	return mend, long(r), ok
}

// fill leaves no byte free on the small disk.
func (s *site) fill(r *rand.Rand, _ *process) (func(), time.Duration, bool) {
	path := filepath.Join(s.disk, "ballast")
	f, err := os.Create(path)
	if err != nil {
		return nil, 0, false
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	f.Close()
	return func() { _ = os.Remove(path) }, time.Second + time.Duration(r.IntN(3000))*time.Millisecond, true
}

func indexOf(all []*process, p *process) int {
	for i, q := range all {
		if q == p {
			return i
		}
	}
	return -1
}

// supervisors lists the child processes of a runner.
func supervisors(pid int) (pids []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for word := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}
