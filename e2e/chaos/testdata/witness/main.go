// Command witness is the work of the fault suite: each of its processes appends a line to a file when it begins, every
// few milliseconds while it lives, and when it ends. The broker has no part in it, so the file can be held against
// everything that the programs say.
//
//	witness FILE MILLISECONDS EXIT MODE
//
// In mode far it leaves a descendant that has left its session and its parents behind; in mode deaf it does not hear
// SIGTERM; in mode plain it does neither.
package main

import (
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	tick    = 20 * time.Millisecond
	farLife = 40 * time.Second // longer than anything waits for it: it has to be ended
)

func main() {
	file, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		os.Exit(99)
	}
	ms, _ := strconv.Atoi(os.Args[2])
	code, _ := strconv.Atoi(os.Args[3])
	switch mode := os.Args[4]; mode {
	case "middle":
		again("last")
	case "last":
		live(file, "far", farLife)
	default:
		say(file, "main", "begin")
		if mode == "deaf" {
			signal.Ignore(syscall.SIGTERM)
		}
		if mode == "far" {
			again("middle")
		}
		live(file, "main", time.Duration(ms)*time.Millisecond)
		say(file, "main", "end "+os.Args[3])
		os.Exit(code)
	}
}

// again starts this program once more, in a session of its own, and does not wait for it.
func again(mode string) {
	c := exec.Command("/proc/self/exe", os.Args[1], os.Args[2], os.Args[3], mode)
	c.Args[0] = os.Args[0]
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.Start() != nil {
		os.Exit(98)
	}
}

func live(file *os.File, who string, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(min(tick, time.Until(end))) {
		say(file, who, "tick")
	}
}

// say appends one line in one write: wall clock in ns, task, attempt, agent, pid, who, what.
func say(file *os.File, who, what string) {
	line := strconv.AppendInt(nil, time.Now().UnixNano(), 10)
	for _, word := range []string{
		os.Getenv("CHIFFON_TASK_ID"), os.Getenv("CHIFFON_ATTEMPT"), os.Getenv("CHIFFON_AGENT_ID"), strconv.Itoa(os.Getpid()), who, what,
	} {
		line = append(append(line, ' '), word...)
	}
	file.Write(append(line, '\n'))
}
