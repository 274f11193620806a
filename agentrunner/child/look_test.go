package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestLook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("#!/bin/sh\n"), mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, plain := file("good/tool", 0o700), file("plain/tool", 0o600)
	loop := filepath.Join(dir, "loop") // nobody can see what is below it, not even root
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path, search, want string
		code               int
	}{
		"on the path":                     {"tool", filepath.Dir(good), good, 0},
		"behind a directory out of sight": {"tool", loop + ":" + filepath.Dir(good), good, 0},
		"only out of sight":               {"tool", loop, "", ExitNotFound},
		"nowhere":                         {"tool", dir, "", ExitNotFound},
		"not executable":                  {"tool", filepath.Dir(plain), "", ExitNotExecutable},
		"executable further on":           {"tool", filepath.Dir(plain) + ":" + filepath.Dir(good), good, 0},
		"in a directory that is relative": {"tool", ".", "", ExitNotFound},
		"by its full path":                {good, "", good, 0},
		"no such path":                    {filepath.Join(dir, "none"), "", "", ExitNotFound},
		"a path that is not executable":   {plain, "", "", ExitNotExecutable},
	} {
		got, err := Look(c.path, dir, []string{"PATH=" + c.search})
		code := 0
		if start, ok := errors.AsType[*StartError](err); ok {
			code = start.ExitCode
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got != c.want || code != c.code {
			t.Errorf("%s: Look(%s) = %q, %v; want %q, code %d", name, c.path, got, err, c.want, c.code)
		}
	}
}

// What the host may have again is no fault of the program.
func TestLacking(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		syscall.EAGAIN: true, syscall.ENOMEM: true, syscall.EMFILE: true, syscall.ENFILE: true,
		syscall.EACCES: false, syscall.E2BIG: false, &StartError{ExitNotFound, "gone"}: false,
	} {
		if got := lacking(fmt.Errorf("start x: %w", err)); got != want {
			t.Errorf("lacking(%v) = %v", err, got)
		}
	}
}
