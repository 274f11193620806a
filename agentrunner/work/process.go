package work

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
)

const (
	listingTime = time.Minute // what a command that counts steps may take
	listingSize = 4 << 20     // bytes of it that are read
	bufferSize  = 64 << 10    // of one read; a pipe holds no more
)

// Work runs the program of a job.
func (j *job) Work(ctx context.Context, a Attempt, out Sink) Outcome {
	began := time.Now()
	end := Outcome{Resources: &message.ResourcesUsed{}}
	if ctx.Err() != nil {
		return stopped(ctx, end)
	}
	if a.Began.IsZero() {
		a.Began = began
	}
	dir, err := os.MkdirTemp(a.Dir, fmt.Sprintf("%s-%d-", a.Task, a.Number))
	if err != nil {
		return cannot(end, err)
	}
	defer os.RemoveAll(dir)
	argv, listing, cwd, err := j.files(dir)
	if err != nil {
		return cannot(end, err)
	}
	env := append(j.environment(dir), a.environment()...)
	if j.t.paramsFile {
		name := filepath.Join(dir, "parameters.json")
		if err := os.WriteFile(name, j.params, 0o600); err != nil {
			return cannot(end, err)
		}
		env = append(env, "CHIFFON_PARAMETERS_FILE="+name)
	}
	s := &stepper{rule: j.t.steps, out: out}
	j.count(ctx, a, s, listing, cwd, env)
	end = j.run(ctx, a, s, j.command(a, argv, cwd, env))
	end.Resources.DurationSeconds = int((time.Since(began) + time.Second - 1) / time.Second)
	return end
}

// environment is that of the type; a runner without a home gives its programs one.
func (j *job) environment(dir string) []string {
	env := slices.Clone(j.env)
	if !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		env = append(env, "HOME="+dir)
	}
	return env
}

// count asks the listing command how many steps there will be. Without an answer nobody knows: the work goes on.
func (j *job) count(ctx context.Context, a Attempt, s *stepper, listing []string, cwd string, env []string) {
	if s.rule == nil {
		return
	}
	s.total = s.rule.number
	if len(listing) == 0 {
		return
	}
	p, err := child.Start(ctx, j.command(a, listing, cwd, env))
	if err != nil {
		return
	}
	p.Deadline(listingTime)
	defer context.AfterFunc(ctx, func() { p.Stop(syscall.SIGKILL, time.Second) })()
	text := &bytes.Buffer{}
	io.Copy(text, io.LimitReader(p.Output(), listingSize))
	io.Copy(io.Discard, p.Output())
	if p.Wait().ExitCode == 0 {
		s.names, s.total = s.rule.listing(text.Bytes())
	}
}

// run starts the program, passes on what it says and waits until nothing of it is left.
func (j *job) run(ctx context.Context, a Attempt, s *stepper, c child.Command) Outcome {
	c.Stdin, c.Survive, c.Keep = j.stdin, j.t.Attempts == 1, a.Keep
	end := Outcome{Resources: &message.ResourcesUsed{}}
	switch {
	case ctx.Err() != nil:
		return stopped(ctx, end)
	case j.maxTime > 0 && j.left(a) <= 0:
		end.Status, end.Fault = message.ResultFailed, timeout(a, j.maxTime)
		return end
	}
	p, err := child.Start(ctx, c)
	if err != nil {
		if ctx.Err() != nil {
			return stopped(ctx, end)
		}
		return cannot(end, err)
	}
	if a.Started != nil {
		a.Started(p)
	}
	gpu := watchGPU(p)
	limit := make(chan struct{})
	over := func() {
		close(limit)
		p.Stop(0, 0)
	}
	unwatch := context.AfterFunc(ctx, func() {
		signal, grace := syscall.Signal(0), time.Duration(0)
		if stop := cause(ctx); stop != nil {
			signal, grace = stop.First(), stop.grace(j.t.grace)
		}
		p.Stop(signal, grace)
	})
	j.pass(p.Output(), s, over)
	result := p.Wait()
	unwatch()
	if result.OverTime > 0 {
		result.OverTime = j.maxTime // since the first attempt
	}

	end = ended(result)
	end.Resources.GPUVRAMMB = gpu()
	select {
	case <-limit:
		return exceeded(end, "max_output", j.t.maxOutput, j.t.maxOutput+1)
	default:
	}
	end = judge(ctx, a, result, end)
	if end.Status == message.ResultSuccess {
		s.completed()
	}
	return end
}

// pass hands the output to the steps, up to the limit; what comes behind it is read and dropped, over is called once.
func (j *job) pass(output io.Reader, s *stepper, over func()) {
	buffer := make([]byte, bufferSize)
	for left, stopped := j.t.maxOutput, false; ; {
		n, err := output.Read(buffer)
		take := min(int64(n), left)
		if take > 0 {
			s.Output(buffer[:take])
			left -= take
		}
		if take < int64(n) && !stopped {
			stopped = true
			over()
		}
		if err != nil {
			return
		}
	}
}

// Recover returns the outcome of an attempt with Keep whose runner died, in the runner's next life, with the last output
// it wrote since. While the work goes on it waits, until ctx ends. The error is child.ErrNotKept if nobody knows the
// outcome, fs.ErrNotExist if the program was never started.
func Recover(ctx context.Context, keep string) (Outcome, child.Survivor, error) {
	k, err := child.Kept(ctx, keep)
	if err != nil {
		return Outcome{}, k, err
	}
	return judge(ctx, Attempt{Number: 1}, k.Outcome, ended(k.Outcome)), k, nil
}

func ended(result child.Outcome) Outcome {
	return Outcome{
		ExitCode: result.ExitCode, Signal: result.Signal,
		Resources: &message.ResourcesUsed{CPUTimeMS: int(result.CPU.Milliseconds())},
	}
}

// judge says what the end of a process means.
func judge(ctx context.Context, a Attempt, result child.Outcome, end Outcome) Outcome {
	switch {
	case result.OverUsed > 0:
		return exceeded(end, "max_memory_mb", result.MaxMemory>>20, result.OverUsed>>20)
	case result.OverTime > 0:
		end.Status, end.Fault = message.ResultFailed, timeout(a, result.OverTime)
		return end
	case result.Expired:
		end.Status = message.ResultFailed
		end.Fault = fault.New(fault.Timeout, "the deadline passed before anybody moved it, so the work was ended")
		return end
	case result.Stopped && ctx.Err() != nil:
		return stopped(ctx, end)
	case result.Lacking, result.Err != "" && result.Signal != "":
		end.Status, end.Note = message.ResultFailed, result.Err
		end.Fault = fault.New(fault.AgentUnavailable, "%s", result.Err)
		return end
	case result.ExitCode == 0:
		end.Status = message.ResultSuccess
		return end
	}
	end.Status, end.Note = message.ResultFailed, result.Err
	return end
}

// timeout is what became of work that took too long: longer than limit, since its first attempt began.
func timeout(a Attempt, limit time.Duration) *fault.Fault {
	return fault.New(fault.Timeout, "max_duration_seconds: the work was not done within %s", limit.Round(time.Second)).
		With("attempted_retries", max(a.Number-1, 0)).With("last_attempt", time.Now().UTC().Format(time.RFC3339))
}

func exceeded(end Outcome, limit string, available, required int64) Outcome {
	end.Status = message.ResultFailed
	end.Fault = fault.New(fault.ResourceLimitExceeded, "%s: the work went beyond %d and was ended", limit, available).
		With("limit_name", limit).With("available", int(available)).With("required", int(required))
	return end
}

// cannot is the outcome when the runner itself could not do its part.
func cannot(end Outcome, err error) Outcome {
	end.Status, end.ExitCode, end.Note = message.ResultFailed, child.ExitNotExecutable, err.Error()
	end.Fault = fault.New(fault.AgentUnavailable, "the runner could not start the work: %v", err)
	return end
}

// cause is why a context ended; nil when nobody said.
func cause(ctx context.Context) *Stop {
	stop, _ := context.Cause(ctx).(*Stop)
	return stop
}

// stopped is the outcome of work that was ended by its context.
func stopped(ctx context.Context, end Outcome) Outcome {
	if stop := cause(ctx); stop != nil {
		return stop.Outcome(end)
	}
	end.Status = message.ResultCancelled
	return end
}

// Outcome is what becomes of work that was stopped so.
func (s *Stop) Outcome(end Outcome) Outcome {
	end.Status, end.Note = message.ResultCancelled, s.Reason
	if s.Fault != nil {
		end.Status, end.Fault = message.ResultFailed, s.Fault
	}
	return end
}
