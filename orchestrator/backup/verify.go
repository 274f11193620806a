package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
	"chiffon/pkg/tasklog"
)

// A Report is what a verification found.
type Report struct {
	Manifest Manifest `json:"manifest"`
	Tasks    int      `json:"tasks"`
	Open     int      `json:"open"`
	Ended    int      `json:"ended"`
	Void     int      `json:"void_entries"` // that do not count, as anybody could have written them
	Damage   []string `json:"damage"`       // what is not as it has to be; the first of it
}

// mostDamage is how much of it is told.
const mostDamage = 100

func (r *Report) damaged(format string, v ...any) {
	if len(r.Damage) < mostDamage {
		r.Damage = append(r.Damage, fmt.Sprintf(format, v...))
	}
}

// Verify restores a file into a broker of its own in a temporary directory, holds every stream against the manifest and
// folds every task. An error means that it cannot be restored at all.
func Verify(ctx context.Context, r io.ReadSeeker, log *slog.Logger) (rep Report, err error) {
	dir, err := os.MkdirTemp("", "chiffon-verify-")
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	store := filepath.Join(dir, "broker")
	rep.Damage = []string{}
	if rep.Manifest, err = Into(ctx, store, r, log); err != nil {
		return rep, err
	}
	s, err := broker.Start(broker.ServerConfig{Dir: store, Relaxed: true, SyncEvery: time.Minute, Log: log})
	if err != nil {
		return rep, err
	}
	defer s.Stop()
	c, err := broker.Connect(broker.Config{Embedded: s, Name: "verify", Log: log})
	if err != nil {
		return rep, err
	}
	defer c.Close()
	return rep, rep.examine(ctx, c)
}

func (r *Report) examine(ctx context.Context, c *broker.Client) error {
	for _, p := range r.Manifest.Parts {
		info, err := c.StreamInfo(ctx, p.Stream)
		if err != nil {
			r.damaged("stream %s: %v", p.Stream, err)
			continue
		}
		// What goes by itself with time may have gone; the word of who led was taken out.
		if lasting := info.Config.MaxAge == 0 && !info.Config.AllowMsgTTL; info.State.LastSeq < p.LastSeq || lasting && info.State.Msgs != p.Messages {
			r.damaged("stream %s has %d messages up to %d, saved were %d up to %d", p.Stream, info.State.Msgs, info.State.LastSeq, p.Messages, p.LastSeq)
		}
	}
	return r.fold(ctx, c)
}

// fold reads the whole task log once and folds all tasks side by side.
func (r *Report) fold(ctx context.Context, c *broker.Client) error {
	states := map[subject.TaskID]tasklog.State{}
	for m, err := range c.Range(ctx, subject.TasksStream, ">", 1) {
		if err != nil {
			return fmt.Errorf("read the task log: %w", err)
		}
		e := m.Entry()
		s, void := states[e.Subject.Task].Next(e)
		// The broker stores nothing that expects what is not there.
		if errors.Is(void, tasklog.ErrExpectation) && e.Expect > 0 {
			r.damaged("task %s: what message %d follows, message %d, is missing", e.Subject.Task, e.Seq, e.Expect)
		}
		states[e.Subject.Task] = s
	}
	for _, s := range states {
		r.Void += s.Void
		switch s.Phase {
		case tasklog.PhaseNone: // nobody has submitted it
		case tasklog.PhaseEnded:
			r.Tasks, r.Ended = r.Tasks+1, r.Ended+1
		default:
			r.Tasks, r.Open = r.Tasks+1, r.Open+1
		}
	}
	return nil
}
