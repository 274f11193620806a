package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"chiffon/orchestrator/backup"
	"chiffon/orchestrator/client"
	"chiffon/pkg/disk"
)

func newBackup(p *program) *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Save everything the orchestrator knows as one file",
		Long: "Save everything the orchestrator knows as one file: tasks with their history and output, agents, settings, artifacts. Work goes\n" +
			"on meanwhile. The file appears when it is whole, with mode 0600; - is standard output. What a restore means for work that\n" +
			"ended after the backup stands in docs/backup.md.",
		Example: `  orchestrator backup /srv/backup/chiffon-$(date +%F).tar
  orchestrator backup --verify /srv/backup/chiffon-2026-11-21.tar
  orchestrator backup - | ssh vault 'cat > chiffon.tar'`,
		Args: arguments(1, 1, "FILE or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if verify {
				return p.verify(cmd.Context(), args[0])
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			return p.backup(cmd.Context(), c, args[0])
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "restore FILE into a broker of its own, in a temporary directory, and fold every task; needs no server")
	return cmd
}

func (p *program) backup(ctx context.Context, c *client.Client, name string) error {
	if name == "-" {
		if p.out.terminal {
			return errors.New("a backup is no text for a terminal: name a file, or send it on: orchestrator backup - > FILE")
		}
		m, err := save(ctx, c, p.out.w)
		if err == nil {
			p.talk.say("saved %d messages of %d streams", m.Messages(), len(m.Parts))
		}
		return err
	}
	m, err := saveFile(ctx, c, name)
	if err != nil {
		return err
	}
	if p.json() {
		return p.out.json(m)
	}
	p.out.say("saved %d messages of %d streams to %s", m.Messages(), len(m.Parts), visible(name))
	return nil
}

// saveFile makes a file that is whole, or none.
func saveFile(ctx context.Context, c *client.Client, name string) (m backup.Manifest, err error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return m, fmt.Errorf("%s is no file that a backup could replace: name a file", visible(name))
	}
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, ".backup-*") // made with 0600
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return m, fmt.Errorf("no file can be made in %s: %w", visible(dir), failed.Err)
	} else if err != nil {
		return m, err
	}
	m, err = save(ctx, c, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return m, errors.Join(err, os.Remove(f.Name()))
	}
	return m, disk.Sync(dir)
}

// save writes a backup and reads it while it comes: only a whole one is a success.
func save(ctx context.Context, c *client.Client, w io.Writer) (m backup.Manifest, err error) {
	r, copied := io.Pipe()
	read := make(chan error, 1)
	go func() {
		var err error
		m, err = backup.Read(r)
		_, rest := io.Copy(io.Discard, r) // the end of the tar
		read <- errors.Join(err, rest)
	}()
	err = c.Backup(ctx, io.MultiWriter(w, copied))
	_ = copied.Close() // a pipe
	if judged := <-read; err == nil {
		err = judged
	}
	return m, err
}

func (p *program) verify(ctx context.Context, name string) error {
	f, done, err := seekable(name, p.in)
	if err != nil {
		return err
	}
	defer done()
	rep, err := backup.Verify(ctx, f, slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if p.json() {
		err = p.out.json(rep)
	} else {
		m := rep.Manifest
		p.out.say("made %s by %s: %d messages of %d streams, hashes fit, restored into a scratch broker", p.when(m.Created), visible(m.Version), m.Messages(), len(m.Parts))
		p.out.say("%d tasks: %d ended, %d open; %d entries that do not count", rep.Tasks, rep.Ended, rep.Open, rep.Void)
		for _, d := range rep.Damage {
			p.out.say("%s %s", p.out.paint(red, "damage:"), visible(d))
		}
	}
	if err == nil && len(rep.Damage) > 0 {
		return &Exit{Code: ExitUsage}
	}
	return err
}

// seekable opens a backup to be read twice; one from standard input is kept in a temporary file until done is called.
func seekable(name string, in io.Reader) (f *os.File, done func(), err error) {
	if name != "-" {
		f, err = os.Open(name)
		return f, func() { _ = f.Close() }, err // only read
	}
	if f, err = os.CreateTemp("", "chiffon-restore-*"); err != nil {
		return nil, nil, err
	}
	done = func() { _, _ = f.Close(), os.Remove(f.Name()) } // a copy
	if _, err = io.Copy(f, in); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		done()
	}
	return f, done, err
}
