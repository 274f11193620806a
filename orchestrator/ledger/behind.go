package ledger

import (
	"context"
	"time"

	"chiffon/pkg/subject"
)

const (
	// lookEvery is how often the log's end is asked for.
	lookEvery = 2 * time.Second

	// slow is how long the views may be behind before that is said. A node of a cluster that dies takes some seconds.
	slow = 5 * time.Second
)

// An end is the last entry of the task log as it was seen at some moment.
type end struct {
	seq  uint64
	seen time.Time // monotonic
}

// Behind is how far the views are behind the task log, and for how long they have been: zeros while they keep up, and
// while the past is still being folded. Entries are counted by their places, so those of tasks that were removed
// count as well.
func (l *Ledger) Behind() (entries uint64, since time.Duration) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !l.loaded || l.owed.seq <= l.seq {
		return 0, 0
	}
	if since = time.Since(l.owed.seen); since < slow {
		return 0, 0
	}
	return l.latest - l.seq, since
}

// watchEnd compares what is folded with the end of the task log as its leader knows it, until ctx ends. The tail mends
// itself; this is the other pair of eyes.
func (l *Ledger) watchEnd(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for told := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if seq, err := l.end(ctx); err == nil {
			l.noteEnd(end{seq, time.Now()})
		}
		entries, since := l.Behind()
		if late := entries > 0; late != told {
			told = late
			l.log.Warn("views are behind the task log", "now", late, "entries", entries, "for", since.Round(time.Second))
		}
	}
}

// end is the last entry of the task log, or what is folded if that is no less.
func (l *Ledger) end(ctx context.Context) (uint64, error) {
	info, err := l.client.StreamInfo(ctx, subject.TasksStream)
	if err != nil {
		return 0, err
	}
	l.mu.RLock()
	folded := l.seq
	l.mu.RUnlock()
	if info.State.LastSeq <= folded {
		return folded, nil
	}
	return l.client.End(ctx, subject.TasksStream, subject.Task("*")) // the last one may have been removed
}

// noteEnd keeps the oldest end that is not folded yet, until it is or nothing behind the fold is left.
func (l *Ledger) noteEnd(e end) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = e.seq
	if l.owed.seq <= l.seq || e.seq <= l.seq {
		l.owed = e
	}
}
