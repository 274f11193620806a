// Package backup saves everything that the broker holds for Chiffon as one file, and puts it back. It knows how streams
// are kept in a file, not what stands in them; only a verification folds the tasks.
package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/build"
)

// Format is that of the files written here. A file with a higher number is refused.
const Format = 1

// A file is a tar: head.json, then each stream as pieces streams/<name>/<number>, and at last manifest.json, without
// which it is not whole.
const (
	headName     = "head.json"
	manifestName = "manifest.json"
	streamsDir   = "streams/"
	piece        = 4 << 20
)

// A Head begins a file.
type Head struct {
	Program string    `json:"program"` // "chiffon"
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the program that wrote it
	Server  string    `json:"nats_server"`
	Created time.Time `json:"created"`
}

// A Part is one stream in a file.
type Part struct {
	broker.Snapshot
	Size   int64  `json:"size"` // of its bytes in the file
	SHA256 string `json:"sha256"`
}

// A Manifest ends a file and says all that has to be in it.
type Manifest struct {
	Head
	Parts []Part `json:"parts"`
}

// Messages is how many there are in all parts.
func (m Manifest) Messages() (n uint64) {
	for _, p := range m.Parts {
		n += p.Messages
	}
	return n
}

// Write saves every stream that the broker holds for Chiffon. Each is as it was at one moment, the task log last: what
// others say of a task is never newer than its log. After an error the file is not whole, and says so when it is read.
func Write(ctx context.Context, c *broker.Client, w io.Writer) (Manifest, error) {
	names, err := c.Streams(ctx)
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{Head: Head{Program: "chiffon", Format: Format, Version: build.Version(), Server: c.ServerVersion(), Created: time.Now().UTC()}}
	t := tar.NewWriter(w)
	if err := put(t, headName, m.Head, m.Created); err != nil {
		return m, err
	}
	for _, name := range tasksLast(names) {
		p := &pieces{tar: t, dir: streamsDir + name + "/", at: m.Created, sum: sha256.New()}
		snap, err := c.Snapshot(ctx, name, p)
		if err == nil {
			err = p.flush()
		}
		if err != nil {
			return m, err
		}
		m.Parts = append(m.Parts, Part{Snapshot: snap, Size: p.size, SHA256: hex.EncodeToString(p.sum.Sum(nil))})
	}
	if err := put(t, manifestName, m, m.Created); err != nil {
		return m, err
	}
	return m, t.Close()
}

func put(t *tar.Writer, name string, v any, at time.Time) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return file(t, name, append(data, '\n'), at)
}

func file(t *tar.Writer, name string, data []byte, at time.Time) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: at}); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}

// pieces writes what comes as files of a tar, whose size has to be known before.
type pieces struct {
	tar  *tar.Writer
	dir  string
	at   time.Time
	buf  []byte
	n    int
	size int64
	sum  hash.Hash
}

func (p *pieces) Write(data []byte) (int, error) {
	p.buf = append(p.buf, data...)
	p.sum.Write(data)
	p.size += int64(len(data))
	if len(p.buf) < piece {
		return len(data), nil
	}
	return len(data), p.flush()
}

func (p *pieces) flush() error {
	if len(p.buf) == 0 {
		return nil
	}
	p.n++
	err := file(p.tar, fmt.Sprintf("%s%06d", p.dir, p.n), p.buf, p.at)
	p.buf = p.buf[:0]
	return err
}

// ErrNotWhole comes back for a file that was cut, or changed, after it was written.
var ErrNotWhole = errors.New("the backup is damaged")

// Read reads a file to its end, holds every part against the manifest and returns that. Nothing of a file may be
// believed before.
func Read(r io.Reader) (Manifest, error) {
	type sum struct {
		size int64
		hash hash.Hash
	}
	found := map[string]*sum{}
	var m Manifest
	t, err := open(r)
	if err != nil {
		return m, err
	}
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return m, fmt.Errorf("%w: it has no manifest, which stands at the end: the file was cut, or its writing was", ErrNotWhole)
		}
		if err != nil {
			return m, fmt.Errorf("%w: %w", ErrNotWhole, err)
		}
		if h.Name == manifestName {
			if err := json.NewDecoder(t).Decode(&m); err != nil {
				return m, fmt.Errorf("%w: %s: %w", ErrNotWhole, manifestName, err)
			}
			break
		}
		name, ok := streamOf(h.Name)
		if !ok {
			return m, fmt.Errorf("%w: %s does not belong there", ErrNotWhole, h.Name)
		}
		if found[name] == nil {
			found[name] = &sum{hash: sha256.New()}
		}
		n, err := io.Copy(found[name].hash, t)
		if err != nil {
			return m, fmt.Errorf("%w: %s: %w", ErrNotWhole, h.Name, err)
		}
		found[name].size += n
	}
	for _, p := range m.Parts {
		s := found[p.Stream]
		if s == nil || s.size != p.Size || hex.EncodeToString(s.hash.Sum(nil)) != p.SHA256 {
			return m, fmt.Errorf("%w: stream %s is not what was written", ErrNotWhole, p.Stream)
		}
	}
	if len(found) != len(m.Parts) {
		return m, fmt.Errorf("%w: it holds %d streams, its manifest names %d", ErrNotWhole, len(found), len(m.Parts))
	}
	return m, nil
}

// open reads the head of a file, and refuses what this program does not know.
func open(r io.Reader) (*tar.Reader, error) {
	t := tar.NewReader(r)
	h, err := t.Next()
	if err != nil || h.Name != headName {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrNotWhole)
	}
	var head Head
	if err := json.NewDecoder(t).Decode(&head); err != nil || head.Program != "chiffon" {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrNotWhole)
	}
	if head.Format > Format {
		return nil, fmt.Errorf("the backup has format %d, this program knows %d: use the version that wrote it (%s) or a newer one", head.Format, Format, head.Version)
	}
	return t, nil
}

// streamOf is the stream whose piece a file of the tar is.
func streamOf(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, streamsDir)
	stream, _, cut := strings.Cut(rest, "/")
	if !ok || !cut || stream == "" {
		return "", false
	}
	return stream, true
}
