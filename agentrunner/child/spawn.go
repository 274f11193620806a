package child

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// spawn starts the program of a command in a session of its own, with the files 0, 1 and 2 of this process, marked, and
// in the control group if there is one: from its first instruction on.
func spawn(c Command, m mark, g *group) (pid int, err error) {
	path, err := Look(c.Path, c.Dir, c.Env)
	if err != nil {
		return 0, err
	}
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil || !info.IsDir() {
			return 0, &StartError{ExitNotExecutable, fmt.Sprintf("working directory %s of %s is missing", c.Dir, c.Path)}
		}
	}
	attr := &syscall.ProcAttr{
		Dir: c.Dir, Env: append(slices.Clip(c.Env), markName+"="+m.String()), Files: []uintptr{0, 1, 2},
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if !c.Survive {
		attr.Sys.Pdeathsig = syscall.SIGKILL // should the supervisor itself be killed
	}
	if g != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(g.dir.Fd())
	}
	pid, err = syscall.ForkExec(path, append([]string{c.Path}, c.Args...), attr)
	switch {
	case err == nil:
		return pid, nil
	case errors.Is(err, syscall.ENOENT):
		return 0, &StartError{ExitNotFound, fmt.Sprintf("program %s names an interpreter that is missing: see its first line, or its loader", path)}
	case lacking(err):
		return 0, fmt.Errorf("start %s: %w", path, err)
	case errors.Is(err, syscall.ENOEXEC):
		return 0, &StartError{ExitNotExecutable, fmt.Sprintf("program %s cannot be executed: it is no program for this system, or lacks a first line like #!/bin/sh", path)}
	}
	return 0, &StartError{ExitNotExecutable, fmt.Sprintf("program %s cannot be executed: %v", path, err)}
}

// lacking reports whether a program could not be started for want of what the host may have again: processes, memory, files.
func lacking(err error) bool {
	for _, want := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, want) {
			return true
		}
	}
	return false
}
