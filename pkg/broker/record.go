package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"chiffon/pkg/disk"
)

// ErrStoreDamaged comes back when a store holds less than was recorded beside it, or was written by a newer program.
// The server itself passes over most of that without a word: what is missing would look as if it had never been.
var ErrStoreDamaged = errors.New("the store is not what it was")

// recordFormat is that of the file beside a store. One with a higher number is not read.
const recordFormat = 1

// recordEvery is how often the record is refreshed. What stands in it was true one refresh earlier, and so is on disk
// also when the store is synced every 100 ms only.
const recordEvery = 5 * time.Second

// A record is the content of the file beside a store.
type record struct {
	Format  int                `json:"format"`
	Server  string             `json:"nats_server"` // the newest that wrote the store
	Streams map[string]holding `json:"streams"`
	Clean   bool               `json:"clean"`            // the store was closed in order, and is as described
	Blocks  map[string]int64   `json:"blocks,omitempty"` // when it is clean: its message blocks and their sizes
}

// A holding is what a stream held. A message that is removed leaves Last as it is.
type holding struct {
	Last     uint64 `json:"last_seq"`
	Messages uint64 `json:"messages"`
	Lasting  bool   `json:"lasting"` // nothing in it goes by itself with time
}

// A recorder keeps the record of one store.
type recorder struct {
	dir, path string
	accept    bool
	log       *slog.Logger
	old       record // as it was found

	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
	now  map[string]holding // what was written last
}

// openRecord reads a store's record, and holds the store's files against it. No record is one of an empty store.
func openRecord(cfg ServerConfig) (*recorder, error) {
	r := &recorder{
		dir: cfg.Dir, path: RecordOf(cfg.Dir), accept: cfg.AcceptLoss, log: cfg.Log,
		stop: make(chan struct{}), now: map[string]holding{},
	}
	data, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("broker store: %w", err)
	}
	var wrong []string
	switch err := json.Unmarshal(data, &r.old); {
	case err != nil:
		wrong = append(wrong, r.path+" cannot be read: "+err.Error())
	case r.old.Format > recordFormat:
		wrong = append(wrong, fmt.Sprintf("%s has format %d, this program knows %d", r.path, r.old.Format, recordFormat))
	case newer(r.old.Server, server.VERSION):
		wrong = append(wrong, fmt.Sprintf("it was written by nats-server %s, this program has %s", r.old.Server, server.VERSION))
	case r.old.Clean:
		wrong = r.missing()
	}
	return r, r.refuse(wrong)
}

// RecordOf is where the record of a store is.
func RecordOf(dir string) string { return filepath.Clean(dir) + ".json" }

// newer compares the first two parts of two versions: the rest changes no format.
func newer(a, b string) bool {
	part := func(version string) (major, minor int) {
		p := strings.SplitN(version+"..", ".", 3)
		major, _ = strconv.Atoi(p[0]) // what is no number counts as old
		minor, _ = strconv.Atoi(p[1])
		return major, minor
	}
	am, an := part(a)
	bm, bn := part(b)
	return am > bm || am == bm && an > bn
}

// missing names the blocks of a store that was closed in order and has other ones now.
func (r *recorder) missing() (wrong []string) {
	found, err := blocks(r.dir)
	if err != nil {
		return []string{err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(r.old.Blocks)) {
		size, ok := found[name]
		switch want := r.old.Blocks[name]; {
		case !ok:
			wrong = append(wrong, name+" is missing")
		case size != want:
			wrong = append(wrong, fmt.Sprintf("%s has %d bytes, it had %d", name, size, want))
		}
	}
	return wrong
}

// blocks are the files with messages, by their path in the store.
func blocks(dir string) (map[string]int64, error) {
	found := map[string]int64{}
	names, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		short, err := filepath.Rel(dir, name)
		if err != nil {
			return nil, err
		}
		found[short] = info.Size()
	}
	return found, nil
}

// compare holds what the server has found in the store against the record, and begins a new one.
func (r *recorder) compare(found map[string]holding, corrupt []string) error {
	wrong := corrupt
	for _, name := range slices.Sorted(maps.Keys(r.old.Streams)) {
		was, is := r.old.Streams[name], found[name]
		_, there := found[name]
		switch {
		case !there:
			wrong = append(wrong, "stream "+name+" is missing")
		case is.Last < was.Last:
			wrong = append(wrong, fmt.Sprintf("stream %s ends with message %d, it had %d", name, is.Last, was.Last))
		case r.old.Clean && was.Lasting && is.Last == was.Last && is.Messages < was.Messages:
			wrong = append(wrong, fmt.Sprintf("stream %s has %d messages, it had %d", name, is.Messages, was.Messages))
		}
	}
	if err := r.refuse(wrong); err != nil {
		return err
	}
	// From here the store changes: nothing but the ends of its streams can be held against it until it is closed.
	if err := r.write(record{Streams: found}); err != nil {
		return fmt.Errorf("broker store: %w", err)
	}
	return nil
}

// refuse makes an error of what is wrong, or a warning where the loss was accepted.
func (r *recorder) refuse(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	if r.accept {
		for _, w := range wrong {
			r.log.Warn("broker store has lost something, which is accepted", "store", r.dir, "what", w)
		}
		r.old = record{}
		return nil
	}
	more := ""
	if len(wrong) > 3 {
		more = fmt.Sprintf("; and %d more like it", len(wrong)-3)
		wrong = wrong[:3]
	}
	return fmt.Errorf("broker store %s: %w: %s%s", r.dir, ErrStoreDamaged, strings.Join(wrong, "; "), more)
}

func (r *recorder) write(rec record) error {
	rec.Format, rec.Server = recordFormat, server.VERSION
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	if err := disk.Replace(r.path, append(data, '\n')); err != nil {
		return err
	}
	r.now = rec.Streams
	return nil
}

// run refreshes the record until end is called.
func (r *recorder) run(states func() map[string]holding) {
	r.done.Go(func() {
		tick := time.NewTicker(recordEvery)
		defer tick.Stop()
		before := r.now
		for failed := false; ; {
			select {
			case <-r.stop:
				return
			case <-tick.C:
			}
			if now := states(); now != nil {
				if !maps.Equal(before, r.now) {
					err := r.write(record{Streams: before})
					if (err != nil) != failed {
						failed = err != nil
						r.log.Warn("record of the broker's store", "written", !failed, "error", err)
					}
				}
				before = now
			}
		}
	})
}

// halt ends what run has begun.
func (r *recorder) halt() {
	r.once.Do(func() { close(r.stop) })
	r.done.Wait()
}

// end writes what the store held when it was closed, after that is on disk.
func (r *recorder) end(held map[string]holding) {
	found, err := blocks(r.dir)
	for name := range found {
		err = errors.Join(err, flush(filepath.Join(r.dir, name)))
	}
	if err == nil && held != nil {
		err = r.write(record{Streams: held, Clean: true, Blocks: found})
	}
	if err != nil {
		r.log.Warn("record of the broker's store is not written", "error", err)
	}
}

// states is what every stream holds now; nil when the server does not say.
func states(s *server.Server) map[string]holding {
	if s == nil || !s.JetStreamEnabled() {
		return nil
	}
	info, err := s.Jsz(&server.JSzOptions{Accounts: true, Streams: true, Config: true})
	if err != nil {
		return nil
	}
	held := map[string]holding{}
	for _, account := range info.AccountDetails {
		for _, st := range account.Streams {
			held[st.Name] = holding{
				Last: st.State.LastSeq, Messages: st.State.Msgs,
				Lasting: st.Config != nil && st.Config.MaxAge == 0 && !st.Config.AllowMsgTTL,
			}
		}
	}
	return held
}

// flush brings a file to the disk.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
