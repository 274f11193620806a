package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
	"chiffon/pkg/disk"
	"chiffon/pkg/subject"
)

// ErrNotEmpty comes back when there is data already where a backup is to be restored.
var ErrNotEmpty = errors.New("there is data already")

// Restore puts a file into a broker that has nothing of Chiffon's. r is read twice: once to know that it is whole, then
// to restore it. After an error nothing of it is left there. fit says what is to differ; nil: nothing.
func Restore(ctx context.Context, c *broker.Client, r io.ReadSeeker, fit func(stream string) broker.Fit) (m Manifest, err error) {
	if m, err = Read(r); err != nil {
		return m, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return m, err
	}
	there, err := c.Streams(ctx)
	if err != nil {
		return m, err
	}
	if len(there) > 0 {
		return m, fmt.Errorf("%w: the broker has %s", ErrNotEmpty, strings.Join(there, ", "))
	}
	if fit == nil {
		fit = func(string) broker.Fit { return broker.Fit{Replicas: 1} }
	}
	if err := restore(ctx, c, r, m, fit); err != nil {
		return m, errors.Join(err, clear(context.WithoutCancel(ctx), c, m))
	}
	return m, nil
}

func restore(ctx context.Context, c *broker.Client, r io.Reader, m Manifest, fit func(string) broker.Fit) error {
	t, err := open(r)
	if err != nil {
		return err
	}
	s := &stretch{tar: t}
	if err := s.advance(); err != nil {
		return err
	}
	for s.stream != "" {
		i := slices.IndexFunc(m.Parts, func(p Part) bool { return p.Stream == s.stream })
		if i < 0 {
			return fmt.Errorf("%w: stream %s", ErrNotWhole, s.stream)
		}
		s.want = s.stream
		if err := c.Restore(ctx, m.Parts[i].Snapshot, fit(s.stream), s); err != nil {
			return err
		}
	}
	return forgetOthers(ctx, c)
}

// A stretch reads the pieces of one stream as if they were one.
type stretch struct {
	tar    *tar.Reader
	stream string // whose piece comes now; "" at the end
	want   string
}

func (s *stretch) advance() error {
	h, err := s.tar.Next()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWhole, err)
	}
	s.stream, _ = streamOf(h.Name) // "" for the manifest, which is the end
	return nil
}

func (s *stretch) Read(data []byte) (int, error) {
	for s.stream == s.want {
		n, err := s.tar.Read(data)
		if n > 0 || !errors.Is(err, io.EOF) {
			return n, err
		}
		if err := s.advance(); err != nil {
			return 0, err
		}
	}
	return 0, io.EOF
}

// forgetOthers takes out the words of orchestrators that led, or made the streams, when the backup was made: nobody is
// to wait for them.
func forgetOthers(ctx context.Context, c *broker.Client) error {
	kv, err := c.Bucket(ctx, broker.StateBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	for _, key := range []string{broker.LeaderKey, broker.MakingKey} {
		if err == nil {
			err = kv.Delete(ctx, key)
		}
	}
	if err != nil {
		return fmt.Errorf("forget who led: %w", err)
	}
	return nil
}

// clear takes away what a restore that failed has made.
func clear(ctx context.Context, c *broker.Client, m Manifest) error {
	var errs []error
	for _, p := range m.Parts {
		errs = append(errs, c.DeleteStream(ctx, p.Stream))
	}
	return errors.Join(errs...)
}

// Into puts a file into a directory that is to be the store of an embedded broker, and is not there yet or empty. It
// becomes that in one step, when everything is in it and on disk; after an error it is as it was.
func Into(ctx context.Context, dir string, r io.ReadSeeker, log *slog.Logger) (Manifest, error) {
	if left, err := os.ReadDir(dir); err == nil {
		for _, e := range left {
			if e.Name() != "lock" {
				return Manifest{}, fmt.Errorf("%w: %s in %s", ErrNotEmpty, e.Name(), dir)
			}
		}
	}
	draft := dir + ".restoring"
	if err := remove(draft); err != nil { // of a restore that was cut off
		return Manifest{}, err
	}
	m, err := into(ctx, draft, r, log)
	if err != nil {
		return m, errors.Join(err, remove(draft))
	}
	// The record first: a crash in between leaves a store that is refused, never one that is half there.
	err = os.Rename(broker.RecordOf(draft), broker.RecordOf(dir))
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = os.Rename(draft, dir)
	}
	if err == nil {
		err = disk.Sync(filepath.Dir(dir))
	}
	return m, err
}

func remove(dir string) error {
	err := os.Remove(broker.RecordOf(dir))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func into(ctx context.Context, dir string, r io.ReadSeeker, log *slog.Logger) (Manifest, error) {
	m, err := Read(r) // before anything is made
	if err != nil {
		return m, err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return m, err
	}
	s, err := broker.Start(broker.ServerConfig{Dir: dir, Relaxed: true, SyncEvery: time.Minute, Log: log}) // what it wrote is brought to disk when it stops
	if err != nil {
		return m, err
	}
	defer s.Stop()
	c, err := broker.Connect(broker.Config{Embedded: s, Name: "restore", Log: log})
	if err != nil {
		return m, err
	}
	defer c.Close()
	limits := broker.LimitsFor(s.StoreCapacity())
	return Restore(ctx, c, r, func(stream string) broker.Fit { return broker.Fit{Replicas: 1, MaxBytes: limits.LimitOf(stream)} })
}

// tasksLast puts the task log at the end.
func tasksLast(names []string) []string {
	at := slices.Index(names, subject.TasksStream)
	if at < 0 {
		return names
	}
	return append(slices.Delete(slices.Clone(names), at, at+1), subject.TasksStream)
}
