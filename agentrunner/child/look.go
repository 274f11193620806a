package child

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit codes that a shell gives, and we do, for programs that never ran.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// A StartError says why a program cannot be started, with the exit code that stands for it.
type StartError struct {
	ExitCode int
	Text     string
}

func (e *StartError) Error() string { return e.Text }

// Look finds the program that a Command with this path, directory and environment would run. Its error is a
// *StartError.
func Look(path, dir string, env []string) (string, error) {
	if strings.Contains(path, "/") {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		switch err := executable(path); {
		case err == nil:
			return path, nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return "", &StartError{ExitNotFound, fmt.Sprintf("program %s does not exist: install it, or correct its path", path)}
		default:
			return "", notExecutable(path, err)
		}
	}
	search := variable(env, "PATH")
	var found error
	for d := range strings.SplitSeq(search, ":") {
		if !filepath.IsAbs(d) {
			continue // never what lies in the directory one happens to stand in
		}
		full := filepath.Join(d, path)
		err := executable(full)
		if err == nil {
			return full, nil
		}
		// A directory that may not be searched holds nothing for us: what is not seen there is not what was meant.
		if _, unseen := errors.AsType[*fs.PathError](err); !unseen && found == nil {
			found = notExecutable(full, err)
		}
	}
	if found != nil {
		return "", found
	}
	return "", &StartError{ExitNotFound, fmt.Sprintf("program %s was not found in %s: install it, or name it by its full path", path, search)}
}

// executable says what keeps a file from being run: a *fs.PathError when it cannot even be seen.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

func notExecutable(path string, err error) error {
	return &StartError{ExitNotExecutable, fmt.Sprintf("program %s cannot be executed (%v): make it executable with chmod +x", path, err)}
}

// variable is the value a name has in an environment; the last one counts.
func variable(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(env[i], name+"="); ok {
			return v
		}
	}
	return ""
}
