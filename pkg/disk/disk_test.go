package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"chiffon/pkg/disk"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"a long first content", "second", ""} {
		if err := disk.Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err != nil || statErr != nil || string(got) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v after Replace(%q)", got, info.Mode(), err, text)
		}
	}
	if err := disk.Replace(filepath.Join(dir, "none", "f"), nil); err == nil {
		t.Error("a file was written into a directory that is not there")
	}
	if err := disk.Replace(filepath.Join(path, "f"), nil); err == nil {
		t.Error("a file was written below a file")
	}
	// A target that cannot be replaced leaves nothing beside it.
	if err := os.Mkdir(filepath.Join(dir, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := disk.Replace(filepath.Join(dir, "full"), []byte("x")); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := disk.Take(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = disk.Take(dir) // another open file is another holder
	locked, ok := errors.AsType[*disk.LockedError](err)
	if !ok || locked.PID != strconv.Itoa(os.Getpid()) || locked.Dir != dir {
		t.Errorf("second Take: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if l, err = disk.Take(dir); err != nil {
		t.Fatalf("after Release: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Take(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there was locked")
	}
}
