package spool_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"chiffon/agentrunner/spool"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

func open(t *testing.T, dir string) *spool.Spool {
	t.Helper()
	s, err := spool.Open(dir)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestLivesFollowEachOther(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	first := open(t, dir)
	if _, err := spool.Open(dir); !errors.Is(err, spool.ErrInUse) {
		t.Fatalf("a second Open = %v, want ErrInUse", err)
	}
	boot, instance := first.Boot, first.Instance
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir)
	if second.Boot <= boot || second.Instance != instance || instance == "" {
		t.Errorf("second life has boot %d instance %s, first had %d and %s", second.Boot, second.Instance, boot, instance)
	}
}

func TestRecordsSurvive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	id := subject.TaskID(message.NewUUID())
	r := spool.Record{
		Task: id, Attempt: 2, Allowed: 4, Boot: s.Boot, Entry: "e", Expect: 7, Begun: true,
		Outcome: &tasklog.Draft{Task: id, Kind: tasklog.Succeeded, ID: "x", Expect: 8, Data: []byte("{}")},
	}
	if err := s.Put(spool.Record{Task: id, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "attempts", "bad.json")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := s.Records()
	if err == nil || len(got) != 1 || !reflect.DeepEqual(got[0], r) {
		t.Fatalf("Records() = %+v, %v, want only %+v and a word about %s", got, err, r, bad)
	}
	info, err := os.Stat(filepath.Join(dir, "attempts", string(id)+".json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("record: %v, %v, want mode 0600", info, err)
	}
	if err := errors.Join(s.Remove(id), s.Remove(id), os.Remove(bad)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Records(); err != nil || len(got) != 0 {
		t.Errorf("Records() after Remove = %v, %v", got, err)
	}
}

// What a newer version has written is not guessed at, and not lost; what one without versions has written is read.
func TestRecordOfANewerVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	older, newer := subject.TaskID(message.NewUUID()), subject.TaskID(message.NewUUID())
	paths := map[string]string{}
	for id, head := range map[subject.TaskID]string{older: "{", newer: `{"v": 2, `} {
		path := filepath.Join(dir, "attempts", string(id)+".json")
		if err := os.WriteFile(path, []byte(head+`"Task": "`+string(id)+`", "Attempt": 1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		paths[string(id)] = path
	}
	got, err := s.Records()
	if !errors.Is(err, spool.ErrNewer) || !strings.Contains(err.Error(), paths[string(newer)]) || len(got) != 1 || got[0].Task != older {
		t.Errorf("Records = %+v, %v, want the older one and ErrNewer for %s", got, err, paths[string(newer)])
	}
	if _, err := os.Stat(paths[string(newer)]); err != nil {
		t.Errorf("the newer record is gone: %v", err)
	}
}

// What a crash leaves between two steps of the spool is gone in the next life; what a record speaks of stays.
func TestLeftoversOfACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	id := subject.TaskID(message.NewUUID())
	if err := s.Put(spool.Record{Task: id, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	orphan := s.Keep(subject.TaskID(message.NewUUID()))
	left := []string{filepath.Join(dir, ".new-1"), filepath.Join(dir, "attempts", ".new-2"), orphan}
	for _, path := range append(left, s.Keep(id)) {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	for _, path := range left {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if _, err := os.Stat(s.Keep(id)); err != nil {
		t.Errorf("what a record speaks of is gone: %v", err)
	}
	if all, err := s.Records(); err != nil || len(all) != 1 {
		t.Errorf("Records = %v, %v, want the one", all, err)
	}
}
