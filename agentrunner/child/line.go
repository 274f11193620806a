package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// superviseArg, as the only argument, makes a program a supervisor.
const superviseArg = "supervise"

// Where a supervisor finds its ends of the line.
const (
	controlFD = 3 // orders, one JSON value a line; its end means that the caller has died
	newsFD    = 4 // news, likewise
	drainFD   = 5 // with Survive: the output's read end, kept open so that the program never writes to a closed pipe
	keepFD    = 6 // with Keep: where the outcome is written; locked as long as there is a supervisor to write it
)

// An order goes to the supervisor: exactly one field is set, Start first.
type order struct {
	Start      *startOrder `json:",omitempty"`
	Stop       *stopOrder  `json:",omitempty"`
	DeadlineMS *int64      `json:",omitempty"` // from now
}

type startOrder struct {
	Command
	Run     string
	NoGroup bool // end the tree without a control group
}

// A stopOrder says how; zero values mean those of the Command.
type stopOrder struct {
	Signal  int   `json:",omitempty"`
	GraceMS int64 `json:",omitempty"`
}

// A news comes from the supervisor: the program's process id when it has started, the outcome at the end.
type news struct {
	PID     int      `json:",omitempty"`
	Outcome *Outcome `json:",omitempty"`
}

// A line is the set of files between caller, supervisor and program.
type line struct {
	outputR, controlW, newsR                     *os.File // ours
	stdin, outputW, controlR, newsW, drain, keep *os.File // theirs
}

func (l *line) open(c Command) error {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("pipe2", err)
	}
	// Only our end must not block: the program expects an ordinary pipe.
	unix.SetNonblock(fd[0], true)
	l.outputR, l.outputW = os.NewFile(uintptr(fd[0]), "output"), os.NewFile(uintptr(fd[1]), "output")
	var err error
	if l.controlR, l.controlW, err = os.Pipe(); err != nil {
		return err
	}
	if l.newsR, l.newsW, err = os.Pipe(); err != nil {
		return err
	}
	if c.Survive {
		// Opened anew, not duplicated: a duplicate would share the flag set above.
		if l.drain, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd[0])); err != nil {
			return err
		}
	}
	if c.Survive && c.Keep != "" {
		if l.keep, err = create(c.Keep); err != nil {
			return err
		}
	}
	if len(c.Stdin) > 0 {
		l.stdin, err = memory(c.Stdin)
	}
	return err
}

// memory returns a file without a name that holds data, so that nobody has to feed a pipe.
func memory(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "stdin")
	if _, err := f.Write(data); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// extra lists the files from controlFD on.
func (l *line) extra() []*os.File {
	files := []*os.File{l.controlR, l.newsW}
	if l.drain != nil {
		files = append(files, l.drain)
	}
	if l.keep != nil {
		files = append(files, l.keep)
	}
	return files
}

func (l *line) closeTheirs() { closeAll(l.stdin, l.outputW, l.controlR, l.newsW, l.drain, l.keep) }

func (l *line) closeOurs() { closeAll(l.outputR, l.controlW, l.newsR) }

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// output reads the pipe that the tree writes to. A process outside of the tree may have been handed the writing end,
// so the pipe's own end may never come: after finish, what is in the pipe is all there is.
type output struct{ file *os.File }

func (o *output) Read(p []byte) (int, error) {
	n, err := o.file.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		n, err = o.rest(p)
	}
	if err != nil {
		o.file.Close()
	}
	if errors.Is(err, os.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

// rest reads what the pipe holds, without waiting for more.
func (o *output) rest(p []byte) (n int, err error) {
	conn, err := o.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = conn.Control(func(fd uintptr) { n, readErr = unix.Read(int(fd), p) })
	switch {
	case err != nil:
		return 0, err
	case errors.Is(readErr, syscall.EAGAIN), readErr == nil && n == 0 && len(p) > 0:
		return 0, io.EOF
	case readErr != nil:
		return 0, readErr
	}
	return n, nil
}

func (o *output) finish() { o.file.SetReadDeadline(time.Unix(1, 0)) }
