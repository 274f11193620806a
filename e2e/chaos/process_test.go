//go:build chaos

package chaos

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is one program that is kept running: whatever ends it, it is started again, as a service manager would.
type process struct {
	site *site
	name string
	argv []string
	env  []string
	log  string // where its output goes

	// lives are what is added to the environment of the first starts, one each. One that names a cut ends there.
	lives [][]string

	// fails says that an exit with code 1 is as it should be: what it needs may have been away when it started.
	fails bool

	busy sync.Mutex // held by the fault that has it in hand

	mu    sync.Mutex
	cmd   *exec.Cmd     // nil while it does not run
	gone  chan struct{} // closed when cmd has ended
	want  os.Signal     // what was sent to end it; nil while nobody wants that
	delay time.Duration // before the next start
	from  int64         // where the log of this life begins
}

// keep runs the program until ctx ends, and ends it then.
func (p *process) keep(ctx context.Context) {
	for ctx.Err() == nil {
		p.once()
		p.mu.Lock()
		delay := p.delay
		p.delay = 200 * time.Millisecond
		p.mu.Unlock()
		pause(ctx, delay)
	}
}

// once starts the program, and returns when it has ended.
func (p *process) once() {
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		p.site.wrong("%s: %v", p.name, err)
		return
	}
	defer log.Close()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	gone := make(chan struct{})
	defer close(gone)
	if p.site.group != "" {
		dir, err := os.Open(p.site.group)
		if err != nil {
			p.site.wrong("%s: %v", p.name, err)
			return
		}
		defer dir.Close()
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	}
	p.mu.Lock()
	if len(p.lives) > 0 {
		cmd.Env = append(slices.Clone(cmd.Env), p.lives[0]...)
		p.lives = p.lives[1:]
	}
	if err := cmd.Start(); err != nil {
		p.mu.Unlock()
		p.site.wrong("start %s: %v", p.name, err)
		return
	}
	p.cmd, p.gone, p.want = cmd, gone, nil
	if info, err := log.Stat(); err == nil {
		p.from = info.Size()
	}
	p.mu.Unlock()
	_ = cmd.Wait() // its ProcessState tells
	p.mu.Lock()
	want := p.want
	p.cmd = nil
	p.mu.Unlock()
	p.judge(cmd, want)
}

// judge holds the end of the program against what was done to it.
func (p *process) judge(cmd *exec.Cmd, want os.Signal) {
	state := cmd.ProcessState
	status := state.Sys().(syscall.WaitStatus)
	cut := slices.IndexFunc(cmd.Env, func(s string) bool { return strings.HasPrefix(s, cutAt) })
	switch {
	case cut >= 0 && status.Signaled() && status.Signal() == syscall.SIGKILL:
		p.site.note("%s is cut: %s", p.name, cmd.Env[cut])
		p.site.count("cuts")
	case want == syscall.SIGKILL, want == syscall.SIGQUIT:
	case want == syscall.SIGTERM && status.Signaled() && status.Signal() == syscall.SIGTERM && !p.cameUp(): // it did not listen yet
	case want == syscall.SIGTERM && p.fails && state.ExitCode() == 1 && !p.cameUp(): // it was about to fail, and heard it too late
	case want == syscall.SIGTERM && state.ExitCode() != 0 && p.name != "broker":
		p.site.wrong("%s was asked to stop, and ended with %s", p.name, state)
	case want == nil && status.Signaled():
		p.site.wrong("%s ended by itself: %s", p.name, state)
	case want == nil && (state.ExitCode() != 1 || !p.fails):
		p.site.wrong("%s ended by itself: %s", p.name, state)
	case want == nil:
		p.site.note("%s could not start", p.name)
	}
}

// cameUp reports whether the program said in this life that it is up.
func (p *process) cameUp() bool {
	log, err := os.ReadFile(p.log)
	return err == nil && bytes.Contains(log[min(p.from, int64(len(log))):], []byte(` is up"`))
}

// pid is its process id, 0 while it does not run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// end sends a signal that ends it; it starts again after delay. The channel is closed when it has ended, nil when it
// did not run.
func (p *process) end(s syscall.Signal, delay time.Duration) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	p.want, p.delay = s, delay
	_ = p.cmd.Process.Signal(s) // it may just have ended
	return p.gone
}

// signal sends a signal that does not end it; false while it does not run.
func (p *process) signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && p.cmd.Process.Signal(s) == nil
}

// patience is how long anything may take that takes seconds.
const patience = 90 * time.Second

// stop ends it for good and waits.
func (p *process) stop(s syscall.Signal) {
	p.signal(syscall.SIGCONT)
	gone := p.end(s, time.Hour)
	if gone == nil {
		return
	}
	select {
	case <-gone:
	case <-time.After(patience):
		p.site.wrong("%s does not end within %v of %v", p.name, patience, s)
		<-p.end(syscall.SIGKILL, time.Hour)
	}
}

// with is an environment that holds nothing of ours but what is given.
func with(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		for _, prefix := range []string{"ORCHESTRATOR_", "AGENTRUNNER_", "NATS_URL=", "STATE_DIRECTORY=", "GOCOVERDIR=", "GORACE="} {
			if len(s) >= len(prefix) && s[:len(prefix)] == prefix {
				return true
			}
		}
		return false
	})
	return append(env, more...)
}

// pause waits, unless ctx ends before: then it returns false.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
