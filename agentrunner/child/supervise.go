package child

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Before main, and before most other packages of the program are set up: each attempt waits for this, and that is half of
// what a supervisor costs.
func init() {
	if len(os.Args) == 2 && os.Args[1] == superviseArg {
		supervise()
	}
}

// supervise is the whole life of a supervisor; it does not return.
func supervise() {
	// The program is to be killed when this thread ends, so this thread must be the one that stays.
	runtime.LockOSThread()
	for _, fd := range []int{controlFD, newsFD, drainFD, keepFD} {
		unix.CloseOnExec(fd)
	}
	// Caught and dropped, not ignored: what is ignored here would be ignored in the program too. To stop is the
	// caller's order alone.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	tell := os.NewFile(newsFD, "news")
	orders := json.NewDecoder(os.NewFile(controlFD, "control"))
	var first order
	if err := orders.Decode(&first); err != nil || first.Start == nil {
		fmt.Fprintln(os.Stderr, "agentrunner supervise: the runner calls this for each task; there is nothing to call by hand")
		os.Exit(1)
	}
	s := &supervision{
		command: first.Start.Command, mark: mark{first.Start.Command.Owner, first.Start.Run}, noGroup: first.Start.NoGroup,
		self: os.Getpid(), news: json.NewEncoder(tell), gone: make(chan struct{}),
	}
	end := s.run(orders)
	s.keep(end)
	s.news.Encode(news{Outcome: end})
	syscall.Exit(0) // nothing is left to flush or to wait for
}

// What is left of a tree when its program has ended by itself may end by itself too, then on a signal, then it is
// killed.
const (
	leftoverWait  = 100 * time.Millisecond
	leftoverGrace = 2 * time.Second
)

const (
	killAgain   = 10 * time.Millisecond  // between two looks at a tree that is being killed, at first
	killSlowly  = time.Second            // and when it does not die: another user's process, or one stuck in the kernel
	memoryEvery = 250 * time.Millisecond // between two looks at its memory
	clockEvery  = time.Second            // between two looks at the clock: timers do not run while the machine sleeps
)

// A supervision is one program's tree, from start to end.
type supervision struct {
	command Command
	mark    mark
	noGroup bool
	self    int    // process id: the root of the tree
	pid     int    // of the program, also its group
	group   *group // nil where none can be made
	news    *json.Encoder
	gone    chan struct{} // closed when the caller has died

	outcome  Outcome
	ended    bool // the program itself has ended
	killing  bool
	pause    time.Duration  // between the last two kills
	next     syscall.Signal // sent when timer fires
	killAt   time.Duration  // when a stop kills what is left, on the clock of sinceBoot; 0 while none is wanted
	timer    *time.Timer    // until the next step of ending the tree; stopped while there is none
	tail     tail           // what the program wrote since the caller died
	drained  chan struct{}  // closed when all of that was read; nil while the caller lives
	deadline time.Duration  // when the tree is killed, on the clock of sinceBoot; 0 while there is none
	overtime time.Duration  // when its MaxTime is over, likewise
	alarm    *time.Timer    // until the next of them
}

func (s *supervision) run(orders *json.Decoder) *Outcome {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return &Outcome{ExitCode: ExitNotExecutable, Err: fmt.Sprintf("become the reaper of %s: %v", s.command.Path, err)}
	}
	os.WriteFile("/proc/self/comm", []byte("agentrunner-sup"), 0) // for ps; it would read "exe"
	pid, err := s.spawn()
	if err != nil {
		code := ExitNotExecutable
		if start, ok := errors.AsType[*StartError](err); ok {
			code = start.ExitCode
		}
		return &Outcome{ExitCode: code, Err: err.Error(), Lacking: lacking(err)}
	}
	s.pid = pid
	letGo()
	s.news.Encode(news{PID: pid})
	s.timer = time.NewTimer(time.Hour)
	s.timer.Stop()

	said, program, empty := make(chan order), make(chan syscall.WaitStatus, 1), make(chan struct{})
	go listen(orders, said, s.gone)
	go reap(pid, program, empty)
	s.loop(said, program, empty)
	s.leaveGroup()

	var used unix.Rusage
	unix.Getrusage(unix.RUSAGE_CHILDREN, &used) // all that were waited for, and all that those waited for
	s.outcome.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	s.outcome.MaxRSS = used.Maxrss * 1024
	return &s.outcome
}

// spawn starts the program, in a control group where one can be made and the program can be started into it.
func (s *supervision) spawn() (pid int, err error) {
	if !s.noGroup {
		s.group = newGroup(s.mark, s.command.MaxMemory)
	}
	pid, err = spawn(s.command, s.mark, s.group)
	if err != nil && s.group != nil {
		s.group.remove(0)
		s.group = nil
		pid, err = spawn(s.command, s.mark, nil)
	}
	return pid, err
}

// loop returns when no process of the tree is left.
func (s *supervision) loop(said <-chan order, program <-chan syscall.WaitStatus, empty <-chan struct{}) {
	clock := time.NewTicker(clockEvery)
	defer clock.Stop()
	var memory <-chan time.Time
	if s.command.MaxMemory > 0 {
		t := time.NewTicker(memoryEvery)
		defer t.Stop()
		memory = t.C
	}
	s.alarm = time.NewTimer(time.Hour)
	defer s.alarm.Stop()
	if s.command.MaxTime > 0 {
		s.overtime = sinceBoot() + s.command.MaxTime
	}
	s.checkClock()
	gone := s.gone
	for {
		select {
		case o := <-said:
			s.obey(o)
		case <-gone:
			gone = nil
			s.abandoned()
		case status := <-program:
			s.programEnded(status)
		case <-s.timer.C:
			s.step()
		case <-s.alarm.C:
			s.checkClock()
		case <-clock.C:
			s.checkClock()
		case <-memory:
			s.checkMemory()
		case <-empty:
			select { // both may have come at once
			case status := <-program:
				s.programEnded(status)
			default:
			}
			return
		}
	}
}

func (s *supervision) obey(o order) {
	switch {
	case o.Stop != nil:
		s.stop(
			cmp.Or(syscall.Signal(o.Stop.Signal), s.command.Signal),
			cmp.Or(time.Duration(o.Stop.GraceMS)*time.Millisecond, s.command.Grace),
		)
	case o.DeadlineMS != nil:
		s.deadline = sinceBoot() + time.Duration(*o.DeadlineMS)*time.Millisecond
		s.checkClock()
	}
}

// stop begins to end the tree: signal now, SIGKILL after grace, or sooner if an earlier call has said so.
func (s *supervision) stop(signal syscall.Signal, grace time.Duration) {
	s.outcome.Stopped = s.outcome.Stopped || !s.ended
	if s.killing {
		return
	}
	s.next = signal
	s.step()
	if !s.killing {
		now := sinceBoot()
		if kill := now + grace; s.killAt == 0 || kill < s.killAt {
			s.killAt = kill
		}
		s.timer.Reset(s.killAt - now)
	}
}

// step sends the signal that is due. The one after it is always SIGKILL, again and again until nothing is left: a tree
// that grows while it is killed is met again.
func (s *supervision) step() {
	if s.next == syscall.SIGKILL {
		if s.group != nil {
			s.group.kill() // at once, whatever it starts meanwhile; below, what has gone to another group
		}
		killTree(s.self, s.pid)
		s.killing = true
		s.pause = min(max(2*s.pause, killAgain), killSlowly)
		s.timer.Reset(s.pause)
		return
	}
	signalTree(s.self, s.pid, s.next)
	s.next = syscall.SIGKILL
	s.timer.Reset(leftoverGrace)
}

func (s *supervision) programEnded(status syscall.WaitStatus) {
	s.ended = true
	s.outcome.ExitCode = status.ExitStatus()
	if status.Signaled() {
		s.outcome.ExitCode = 128 + int(status.Signal())
		s.outcome.Signal = unix.SignalName(status.Signal())
	}
	if !s.outcome.Stopped {
		s.next = syscall.SIGTERM
		s.timer.Reset(leftoverWait)
	}
}

// abandoned decides what happens when the caller has died.
func (s *supervision) abandoned() {
	if !s.command.Survive {
		s.stop(syscall.SIGKILL, 0)
		return
	}
	s.drained = make(chan struct{})
	go func() {
		defer close(s.drained)
		io.Copy(&s.tail, os.NewFile(drainFD, "output"))
	}()
}

// listen hands on what the caller says, and closes gone when it has died. From then on a later life of the caller may
// speak: see StopKept.
func listen(orders *json.Decoder, said chan<- order, gone chan<- struct{}) {
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			break
		}
		said <- o
	}
	close(gone)
	// With a writing end of our own the pipe does not end again.
	control, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", controlFD), os.O_RDWR, 0)
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(control); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err == nil {
			said <- o
		}
	}
}

// reap waits for every process that is or becomes a child of this one, and closes empty when there is none: then no
// descendant is left either.
func reap(pid int, program chan<- syscall.WaitStatus, empty chan<- struct{}) {
	defer close(empty)
	for {
		var status syscall.WaitStatus
		switch got, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return
		case got == pid:
			program <- status
		}
	}
}

// letGo puts the null device in the place of the program's files, so that the output ends with the last process of the
// tree.
func letGo() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for fd := range 3 {
		unix.Dup3(int(null.Fd()), fd, 0)
	}
}
