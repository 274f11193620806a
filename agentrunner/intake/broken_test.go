package intake_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"chiffon/agentrunner/intake"
	"chiffon/pkg/message"
	"chiffon/pkg/tasklog"
)

// A runner that cannot write its journal takes nothing, says so, and goes on by itself once it can.
func TestJournalCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var said warnings
	changed := make(chan struct{}, 10)
	a := w.agent("one", func(c *intake.Config) {
		c.Mend, c.Slots = 50*time.Millisecond, 2
		c.Changed = func() { changed <- struct{}{} }
		c.Log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	journal := filepath.Join(a.state, "attempts")
	if err := os.Rename(journal, journal+".away"); err != nil {
		t.Fatal(err)
	}
	first, second := w.submit(order{workType: "talk"}), w.submit(order{workType: "talk"})
	<-changed
	state, detail := a.State()
	if state != message.StateBroken || detail != "cannot write its journal: no such file or directory" {
		t.Errorf("state %q, %q", state, detail)
	}
	if got := w.kinds(first); !slices.Equal(got, []tasklog.Kind{tasklog.Submitted}) {
		t.Errorf("log is %v", got)
	}
	if err := os.Rename(journal+".away", journal); err != nil {
		t.Fatal(err)
	}
	<-changed
	if state, detail := a.State(); state != message.StateReady || detail != "" {
		t.Errorf("state %q, %q after the disk is back", state, detail)
	}
	w.entry(first, tasklog.Succeeded)
	w.entry(second, tasklog.Succeeded)
	if n := said.lines("level=ERROR"); n != 1 {
		t.Errorf("%d errors are logged, want 1:\n%s", n, &said.text)
	}
}

// An outcome that the disk does not take is held in memory. It is written once there is room, so that it also outlives a
// runner that has no broker to tell it to.
func TestOutcomeIsKeptOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) { c.Mend, c.Report = 50*time.Millisecond, 100*time.Millisecond })
	d := w.door()
	id := w.submit(order{workType: "once", params: d.params()})
	seen := d.begun(1)
	journal := filepath.Join(a.state, "attempts")
	if err := os.Rename(journal, journal+".away"); err != nil {
		t.Fatal(err)
	}
	w.server.Stop()
	d.open()
	w.eventually("the work is over", func() bool { return !d.runs(seen) })
	w.eventually("the runner says that it is broken", func() bool { state, _ := a.State(); return state == message.StateBroken })
	if len(a.Running()) != 1 {
		t.Error("a runner with an outcome to tell holds nothing")
	}
	if err := os.Rename(journal+".away", journal); err != nil {
		t.Fatal(err)
	}
	w.eventually("the outcome is on disk", func() bool { return a.record(t, id).Outcome != nil })
	a.stop(intake.ErrAtOnce)
}

// The disk is full while work runs, and the broker is there: the outcome is told all the same.
func TestOutcomeIsToldWithoutADisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent("one", func(c *intake.Config) { c.Mend = 50 * time.Millisecond })
	d := w.door()
	id := w.submit(order{workType: "once", params: d.params()})
	d.begun(1)
	journal := filepath.Join(a.state, "attempts")
	if err := os.Rename(journal, journal+".away"); err != nil {
		t.Fatal(err)
	}
	d.open()
	w.entry(id, tasklog.Succeeded)
	next := w.submit(order{workType: "talk"})
	if err := os.Rename(journal+".away", journal); err != nil {
		t.Fatal(err)
	}
	w.entry(next, tasklog.Succeeded)
}
