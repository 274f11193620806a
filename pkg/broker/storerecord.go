package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A storeRecord is the record beside the store of an embedded server. It knows the store's files as well.
type storeRecord struct {
	recorder
	dir string

	stop context.CancelFunc // ends what start has begun
	done sync.WaitGroup
}

// openRecord reads a store's record, and holds the store's files against it. No record is one of an empty store.
func openRecord(cfg ServerConfig) (*storeRecord, error) {
	r := &storeRecord{
		recorder: recorder{
			of: "broker store " + cfg.Dir, path: RecordOf(cfg.Dir), accept: cfg.AcceptLoss, log: cfg.Log,
			kind: record{Server: server.VERSION}, now: map[string]holding{},
		},
		dir: cfg.Dir, stop: func() {},
	}
	wrong, err := r.read()
	if err != nil {
		return nil, err
	}
	switch {
	case len(wrong) > 0:
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
func (r *storeRecord) missing() (wrong []string) {
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
func (r *storeRecord) compare(found map[string]holding, corrupt []string) error {
	if err := r.refuse(append(corrupt, r.old.less(found)...)); err != nil {
		return err
	}
	// From here the store changes: nothing but the ends of its streams can be held against it until it is closed.
	return r.write(record{Seen: time.Now(), Streams: found})
}

// start refreshes the record until halt is called.
func (r *storeRecord) start(states func() map[string]holding) {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	r.done.Go(func() { r.run(ctx, r.now, func(context.Context) map[string]holding { return states() }) })
}

// halt ends what start has begun.
func (r *storeRecord) halt() {
	r.stop()
	r.done.Wait()
}

// end writes what the store held when it was closed, after that is on disk.
func (r *storeRecord) end(held map[string]holding) {
	found, err := blocks(r.dir)
	for name := range found {
		err = errors.Join(err, flush(filepath.Join(r.dir, name)))
	}
	if err == nil && held != nil {
		err = r.write(record{Seen: time.Now(), Streams: held, Clean: true, Blocks: found})
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
				Created: st.Created.UTC(), Last: st.State.LastSeq, Messages: st.State.Msgs,
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
