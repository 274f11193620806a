package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/server"
)

func newDemo(p *program) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Try everything on this host: broker, orchestrator, a runner and a real task",
		Long: "Run a broker, an orchestrator and a runner on free ports with a temporary state, submit survey_host, show its progress and\n" +
			"its result, and stay up until Ctrl-C. Nothing is left behind.",
		Example: "  orchestrator demo\n  orchestrator demo --once",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.demo(cmd.Context(), once)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "end by itself, with the exit code of the task")
	return cmd
}

// demo is a whole installation that lives as long as the call.
func (p *program) demo(ctx context.Context, once bool) (err error) {
	dir, err := os.MkdirTemp("", "chiffon-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var log tail
	s, err := server.Open(ctx, server.Config{
		State: filepath.Join(dir, "orchestrator"), Listen: "127.0.0.1:0", BrokerListen: "127.0.0.1:0",
	}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		return err
	}
	defer s.Close()
	return p.everything(ctx, s, dir, &log, once)
}

// everything runs server, runner and task side by side. When the task is done with, or ctx ends, the runner is stopped,
// then the server, to which it says good-bye.
func (p *program) everything(ctx context.Context, s *server.Server, dir string, log *tail, once bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	serve, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	var wg, runners sync.WaitGroup
	defer wg.Wait()
	defer stopServer()
	wg.Go(func() {
		if err := s.Run(serve); err != nil {
			cancel(fmt.Errorf("orchestrator: %w", err))
		}
	})
	runner, err := startRunner(s, dir, log)
	if err != nil {
		return err
	}
	var stopping atomic.Bool
	runners.Go(func() {
		if err := runner.Wait(); !stopping.Load() {
			cancel(fmt.Errorf("the runner has ended (%v); the log said:\n%s", err, log.String()))
		}
	})
	defer runners.Wait()
	defer func() {
		stopping.Store(true)
		_ = runner.Process.Signal(syscall.SIGTERM) // it may have ended
	}()
	err = p.show(ctx, s, once)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// startRunner starts the agentrunner that lies beside this program.
func startRunner(s *server.Server, dir string, log io.Writer) (*exec.Cmd, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(own), "agentrunner")
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("the demo needs agentrunner beside %s: %w: \"make build\" makes both", own, err)
	}
	cmd := exec.Command(path, "run")
	cmd.Env = append(os.Environ(),
		"NATS_URL="+s.BrokerURL(),
		"AGENTRUNNER_STATE="+filepath.Join(dir, "agentrunner"),
		"AGENTRUNNER_ID=demo", "AGENTRUNNER_TYPE=infra", "AGENTRUNNER_SLOTS=2", "AGENTRUNNER_LABELS=site=demo",
		"AGENTRUNNER_ALLOW_COMMANDS=*",
		"AGENTRUNNER_DRAIN=2s",
	)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // Ctrl-C is for us: the runner is asked to stop when it is time
		Pdeathsig: syscall.SIGTERM, // and ends if we are killed
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return cmd, nil
}

// show submits the task, follows it, and says how to go on.
func (p *program) show(ctx context.Context, s *server.Server, once bool) error {
	found, err := client.Place{State: s.State(), Server: s.URL(), Config: s.State()}.Find()
	if err != nil {
		return err
	}
	c, err := client.New(found.URL, found.Credential)
	if err != nil {
		return err
	}
	p.out.say("orchestrator at %s, broker at %s", s.URL(), s.BrokerURL())
	if err := p.awaitAgent(ctx, c, "demo"); err != nil {
		return err
	}
	p.out.say("submit infra survey_host")
	t, _, err := c.Submit(ctx, client.Submission{AgentType: "infra", WorkType: "survey_host", Parameters: []byte("{}"), Name: "demo"})
	if err != nil {
		return err
	}
	task, err := p.follow(ctx, c, t.TaskID)
	if err != nil {
		if ctx.Err() != nil {
			return &Exit{Code: ExitInterrupted, err: err, text: "interrupted; the demo is over, its task with it"}
		}
		return err
	}
	if once {
		return ended(task)
	}
	own := os.Args[0]
	p.out.say("\nLook at it again, from another terminal:\n")
	p.out.say("  export ORCHESTRATOR_URL=%s ORCHESTRATOR_STATE=%s", s.URL(), s.State())
	p.out.say("  %s task show %s", own, short(t.TaskID))
	p.out.say("  %s task logs %s", own, short(t.TaskID))
	p.out.say("  %s agent list", own)
	p.out.say("  %s run -- uname -a\n", own)
	p.out.say("Ctrl-C ends the demo; nothing is left behind.")
	<-ctx.Done()
	return nil
}

// awaitAgent returns when an agent is there and ready.
func (p *program) awaitAgent(ctx context.Context, c *client.Client, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("agent %s did not register in a minute", id))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if a, err := c.Agent(ctx, id); err == nil && a.State == "ready" {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// A tail keeps the last of what is written to it, to show it if something goes wrong. Safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const tailSize = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(p)
	if extra := t.buf.Len() - tailSize; extra > tailSize {
		t.buf.Next(extra)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
