package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"chiffon/pkg/disk"
)

// ErrStoreDamaged comes back when a broker holds less than was recorded of it, is another one, or has a store that a
// newer program wrote. The server itself passes over most of that without a word: what is missing would look as if it
// had never been.
var ErrStoreDamaged = errors.New("the store is not what it was")

// recordFormat is that of a record's file. One with a higher number is not read.
const recordFormat = 1

// recordEvery is how often a record is refreshed. What stands in it was true one refresh earlier, and so is on disk
// also when the store is synced every 100 ms only.
const recordEvery = 5 * time.Second

// A record is the content of a file that says what a broker held.
type record struct {
	Format  int                `json:"format"`
	Server  string             `json:"nats_server,omitempty"` // the newest that wrote the store, of an embedded one
	URL     string             `json:"url,omitempty"`         // where it was, of one that is somebody else's
	Seen    time.Time          `json:"seen,omitzero"`         // when the streams were so
	Streams map[string]holding `json:"streams"`
	Clean   bool               `json:"clean,omitempty"`  // the store was closed in order, and is as described
	Blocks  map[string]int64   `json:"blocks,omitempty"` // when it is clean: its message blocks and their sizes
}

// A holding is what a stream held. A message that is removed leaves Last as it is.
type holding struct {
	Created  time.Time `json:"created,omitzero"` // one made anew under the same name is another one
	Last     uint64    `json:"last_seq"`
	Messages uint64    `json:"messages,omitempty"`
	Lasting  bool      `json:"lasting,omitempty"` // nothing in it goes by itself with time
}

// less says what was in the record and is not in what was found.
func (was record) less(found map[string]holding) (wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(was.Streams)) {
		had := was.Streams[name]
		has, there := found[name]
		switch {
		case !there:
			wrong = append(wrong, "stream "+name+" is missing")
		case !had.Created.IsZero() && !has.Created.Equal(had.Created):
			wrong = append(wrong, fmt.Sprintf("stream %s is another one, made on %s", name, moment(has.Created)))
		case has.Last < had.Last:
			wrong = append(wrong, fmt.Sprintf("stream %s ends with message %d, it had %d", name, has.Last, had.Last))
		case was.Clean && had.Lasting && has.Last == had.Last && has.Messages < had.Messages:
			wrong = append(wrong, fmt.Sprintf("stream %s has %d messages, it had %d", name, has.Messages, had.Messages))
		}
	}
	return wrong
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// A recorder keeps one record, of whatever broker it is told of.
type recorder struct {
	of     string // the broker, for people
	path   string
	accept bool
	log    *slog.Logger

	kind record             // what each version of the file says alike
	old  record             // as it was found
	now  map[string]holding // what was written last
}

// read takes up the record as it is. No file is a record of nothing. wrong is why it cannot be used.
func (r *recorder) read() (wrong []string, err error) {
	data, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.of, err)
	}
	switch err := json.Unmarshal(data, &r.old); {
	case err != nil:
		wrong = append(wrong, r.path+" cannot be read: "+err.Error())
	case r.old.Format > recordFormat:
		wrong = append(wrong, fmt.Sprintf("%s has format %d, this program knows %d", r.path, r.old.Format, recordFormat))
	}
	return wrong, nil
}

// refuse makes an error of what is wrong, or a warning where the loss was accepted.
func (r *recorder) refuse(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	if r.accept {
		for _, w := range wrong {
			r.log.Warn("broker has lost something, which is accepted", "broker", r.of, "what", w)
		}
		r.old = record{}
		return nil
	}
	more := ""
	if len(wrong) > 3 {
		more = fmt.Sprintf("; and %d more like it", len(wrong)-3)
		wrong = wrong[:3]
	}
	when := ""
	if !r.old.Seen.IsZero() {
		when = " on " + moment(r.old.Seen)
	}
	return fmt.Errorf("%s: %w%s: %s%s", r.of, ErrStoreDamaged, when, strings.Join(wrong, "; "), more)
}

func (r *recorder) write(rec record) error {
	rec.Format, rec.Server, rec.URL = recordFormat, r.kind.Server, r.kind.URL
	rec.Seen = rec.Seen.UTC().Truncate(time.Second)
	data, err := json.MarshalIndent(rec, "", "  ")
	if err == nil {
		err = disk.Replace(r.path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.of, err)
	}
	r.now = rec.Streams
	return nil
}

// run refreshes the record until ctx ends, with what look has found one refresh earlier, first of all with seen. look
// returns nil when it is not known what the broker holds.
func (r *recorder) run(ctx context.Context, seen map[string]holding, look func(context.Context) map[string]holding) {
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	at := time.Now()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		found := look(ctx)
		if found == nil {
			continue
		}
		rec := record{Seen: at, Streams: seen}
		if lost := rec.less(found); len(lost) == 0 && !maps.Equal(seen, r.now) { // what a crash has taken was not stored
			err := r.write(rec)
			if (err != nil) != failed {
				failed = err != nil
				r.log.Warn("record of what the broker holds", "written", !failed, "error", err)
			}
		}
		seen, at = found, time.Now()
	}
}
