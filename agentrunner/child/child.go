// Package child runs a program as a supervised process tree: whatever the program starts ends with it, and its outcome
// counts the processor time of all of them. It knows nothing of tasks, of the broker or of what the program is for.
//
// Between the caller and the program stands a small supervisor: the caller's own executable, started again with the one
// argument "supervise". A program that imports this package is a supervisor from before its main when it is started so.
// It is the subreaper of the tree, so that no descendant can get away from it, and it holds a pipe whose other end is
// the caller: when that pipe ends, the caller has died and the supervisor acts alone. Where a control group (version 2)
// can be made, the program is born in one and the kernel kills all of it at once.
package child

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"chiffon/pkg/cut"
)

// A Command says what to run. The zero value of a field means its default.
type Command struct {
	Path  string   // a name to be looked up in the PATH of Env, or a path (relative ones start from Dir)
	Args  []string // the arguments, without the program's name
	Dir   string   // working directory; default the caller's
	Env   []string // the whole environment, as KEY=value; nothing is inherited
	Stdin []byte   // what the program reads; default nothing

	// Signal and Grace are how Stop ends the tree when it is not told otherwise: SIGTERM, then 10 s until SIGKILL.
	Signal syscall.Signal
	Grace  time.Duration

	// Survive lets the program finish when the caller dies; its output is thrown away from then on. Otherwise the
	// whole tree is killed at once.
	Survive bool

	// Keep, with Survive, is a file to which the outcome is written, also when the caller has died by then: see Kept.
	// Whoever has read it removes it.
	Keep string

	// MaxMemory, in bytes, is how much memory the tree may hold together before it is killed. The kernel holds the
	// limit where it hands its memory controller on to us; otherwise the supervisor looks at the resident memory four
	// times a second, and what several processes share counts for each of them. Default no limit.
	MaxMemory int64

	// MaxTime is how long the program may run before the supervisor stops it with Signal and Grace, whatever has
	// become of the caller. Time during which the machine sleeps counts. Default no limit.
	MaxTime time.Duration

	// Owner is under what name a later life of the caller finds what is left of the tree: see Sweep. Letters, digits
	// and -.
	Owner string

	noGroup bool // for tests: as where no control group can be made
}

// DefaultGrace is how long a tree that is told to stop may take before it is killed.
const DefaultGrace = 10 * time.Second

// An Outcome says how a program ended. By then no process of its tree is left.
type Outcome struct {
	ExitCode  int           `json:"exit_code"`            // 128+n for signal n, 127 missing program, 126 not executable
	Signal    string        `json:"signal,omitempty"`     // the signal it died of, as "SIGTERM"
	Stopped   bool          `json:"stopped,omitempty"`    // it was ended on request, at a deadline or by a limit
	Expired   bool          `json:"expired,omitempty"`    // the supervisor ended it at its deadline
	OverUsed  int64         `json:"over_used,omitempty"`  // bytes of memory it held when MaxMemory ended it
	MaxMemory int64         `json:"max_memory,omitempty"` // with OverUsed: the limit
	OverTime  time.Duration `json:"over_time,omitempty"`  // the MaxTime that ended it
	CPU       time.Duration `json:"cpu"`                  // user and system time of the whole tree
	MaxRSS    int64         `json:"max_rss"`              // bytes held at most by the largest process
	Lacking   bool          `json:"lacking,omitempty"`    // it was not started, for the host had not enough of what that takes
	Err       string        `json:"err,omitempty"`        // why the program could not be started or its end not be seen
}

// A Process is a running Command. Its methods may be called from several goroutines.
type Process struct {
	command    Command
	mark       mark
	supervisor *exec.Cmd
	output     *output
	pid        int
	done       chan struct{}
	outcome    Outcome // written before done is closed

	mu      sync.Mutex
	control *os.File    // nil once the process has ended
	stopBy  time.Time   // when the tree that was told to stop is to be gone; zero while nobody wants that
	endBy   time.Time   // the deadline, likewise
	overBy  time.Time   // the end of its MaxTime, likewise
	late    *time.Timer // until this process ends the tree itself
}

// Start runs a command under a supervisor. A program that is missing or cannot be executed is no error: its Outcome
// tells. An error means that not even the supervisor could be started, or that ctx ended before it had answered: then
// nothing runs. ctx plays no part later on, see Stop. The caller must read Output to its end and call Wait.
func Start(ctx context.Context, c Command) (*Process, error) {
	if c.Signal == 0 {
		c.Signal = syscall.SIGTERM
	}
	if c.Grace <= 0 {
		c.Grace = DefaultGrace
	}
	m, err := newMark(c.Owner)
	if err != nil {
		return nil, fmt.Errorf("start supervisor of %s: %w", c.Path, err)
	}
	var l line
	defer l.closeTheirs()
	if err := l.open(c); err != nil {
		l.closeOurs()
		return nil, fmt.Errorf("start supervisor of %s: %w", c.Path, err)
	}
	sup := &exec.Cmd{
		// The running program itself, even when the file it came from has been replaced since.
		Path:        "/proc/self/exe",
		Args:        []string{"agentrunner", superviseArg},
		Env:         m.supervisor(c.Survive),
		Stdin:       l.stdin,
		Stdout:      l.outputW,
		Stderr:      l.outputW,
		ExtraFiles:  l.extra(),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	cut.Before("start", "supervisor")
	p := &Process{command: c, mark: m, supervisor: sup, output: &output{file: l.outputR}, control: l.controlW, done: make(chan struct{})}
	if err := p.launch(); err != nil {
		l.closeOurs()
		return nil, fmt.Errorf("start supervisor of %s: %w", c.Path, err)
	}
	p.late = time.AfterFunc(math.MaxInt64, p.takeOver)
	if c.MaxTime > 0 {
		p.expect(&p.overBy, c.MaxTime+c.Grace)
	}
	started := make(chan struct{})
	go p.follow(l.newsR, started)
	cut.Before("start", "work")
	if err := p.order(order{Start: &startOrder{c, m.run, c.noGroup}}); err != nil {
		p.hangUp()
	}
	select {
	case <-started:
		cut.After("start", "work")
		return p, nil
	case <-ctx.Done():
		// The program may have begun already, and one with Survive would go on without us.
		p.Stop(syscall.SIGKILL, time.Millisecond)
		io.Copy(io.Discard, p.Output()) // a full pipe would keep it from ending
		<-p.done
		return nil, fmt.Errorf("start %s: %w", c.Path, context.Cause(ctx))
	}
}

// PID is the process id of the program, 0 if it could not be started.
func (p *Process) PID() int { return p.pid }

// Tree lists the process ids of the program and of all that descend from it, as they are now.
func (p *Process) Tree() []int {
	var pids []int
	for _, d := range descendants(p.supervisor.Process.Pid) {
		pids = append(pids, d.pid)
	}
	return pids
}

// Output is what the tree writes to its standard output and error, in the order it was written. It ends once the
// outcome is known and everything written has been read. A program whose output nobody reads comes to a halt.
func (p *Process) Output() io.Reader { return p.output }

// Stop sends a signal to the whole tree and kills what is left of it after grace. Zero values mean those of the
// Command. It does not wait: Wait returns when nothing is left. A second call may shorten the grace, or change the
// signal.
func (p *Process) Stop(signal syscall.Signal, grace time.Duration) {
	p.expect(&p.stopBy, cmp.Or(max(grace, 0), p.command.Grace))
	p.order(stopWith(signal, grace))
}

// Deadline has the supervisor kill the tree after d, whatever becomes of the caller, unless a later call moves the
// moment. Time during which the machine sleeps counts.
func (p *Process) Deadline(d time.Duration) {
	p.expect(&p.endBy, max(d, 0))
	p.order(order{DeadlineMS: new(max(d.Milliseconds(), 0))})
}

// Wait returns the outcome when no process of the tree is left.
func (p *Process) Wait() Outcome {
	<-p.done
	return p.outcome
}

// Done is closed when the outcome is known.
func (p *Process) Done() <-chan struct{} { return p.done }

// order tells the supervisor something. Once the process has ended there is nobody to tell.
func (p *Process) order(o order) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control == nil {
		return os.ErrClosed
	}
	_, err = p.control.Write(append(text, '\n'))
	p.supervisor.Process.Signal(syscall.SIGCONT) // should somebody have stopped it
	return err
}

// hangUp lets the supervisor believe that the caller has died.
func (p *Process) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control != nil {
		p.control.Close()
		p.control = nil
	}
}

// follow reads what the supervisor says until it has ended.
func (p *Process) follow(newsR *os.File, started chan<- struct{}) {
	defer close(p.done)
	defer newsR.Close()
	said := sync.OnceFunc(func() { close(started) })
	defer said()
	buried := make(chan struct{})
	go func() {
		defer close(buried)
		p.bury()
		newsR.SetReadDeadline(time.Now().Add(lastNews))
	}()
	var end *Outcome
	for dec := json.NewDecoder(newsR); end == nil; {
		var n news
		if err := dec.Decode(&n); err != nil {
			break
		}
		if n.PID != 0 && p.pid == 0 {
			p.pid = n.PID
			said()
		}
		end = n.Outcome
	}
	<-buried
	p.late.Stop()
	p.hangUp()
	if end == nil || !p.supervisor.ProcessState.Success() { // whoever killed it may have spoken in its name
		end = p.lost()
	}
	p.outcome = *end
	p.output.finish()
}

// lost is the outcome when the supervisor was killed: nobody is left to tell the exit code. What it left is ended here,
// however long that takes: an end is told when nothing runs.
func (p *Process) lost() *Outcome {
	s := sweep{owner: p.mark.owner, only: p.mark.run, killed: map[process]bool{}}
	s.run(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	stopped := !p.stopBy.IsZero()
	first := func(t time.Time) bool { return !t.IsZero() && now.After(t) && (!stopped || t.Before(p.stopBy)) }
	end := &Outcome{
		ExitCode: 128 + int(syscall.SIGKILL), Signal: unix.SignalName(syscall.SIGKILL),
		Err:     fmt.Sprintf("%s: its supervisor ended before it (%s); the program was killed", p.command.Path, p.supervisor.ProcessState),
		Stopped: stopped || first(p.endBy) || first(p.overBy),
		Expired: first(p.endBy),
	}
	if first(p.overBy) {
		end.OverTime = p.command.MaxTime
	}
	return end
}
