package ledger

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// saveVersion is that of what Save writes. Another one is not read.
const saveVersion = 2

// ErrVersion comes back from Load for what another version of Save has written. Fold the log instead.
var ErrVersion = errors.New("the saved ledger is of another version")

type saveHead struct {
	Version int    `json:"v"`
	Seq     uint64 `json:"seq"`
	Tasks   int    `json:"tasks"`
}

// Save writes the ledger as it is: one JSON line about it, then one for each task, oldest first.
func (l *Ledger) Save(w io.Writer) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	if err := enc.Encode(saveHead{Version: saveVersion, Seq: l.seq, Tasks: len(l.order)}); err != nil {
		return fmt.Errorf("save the ledger: %w", err)
	}
	for _, t := range l.order {
		if err := enc.Encode(t); err != nil {
			return fmt.Errorf("save task %s: %w", t.ID, err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("save the ledger: %w", err)
	}
	return nil
}

// Load takes in what Save wrote, into an empty ledger that does not run yet; Run folds what has come since. After an
// error the ledger is still empty.
func (l *Ledger) Load(r io.Reader) error {
	dec := json.NewDecoder(bufio.NewReader(r))
	var head saveHead
	if err := dec.Decode(&head); err != nil {
		return fmt.Errorf("load the ledger: %w", err)
	}
	if head.Version != saveVersion {
		return ErrVersion
	}
	order := make([]*Task, 0, head.Tasks)
	for range head.Tasks {
		t := new(Task)
		if err := dec.Decode(t); err != nil {
			return fmt.Errorf("load the ledger: %w", err)
		}
		order = append(order, t)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq, l.order = head.Seq, order
	now := time.Now()
	for _, t := range order {
		t.Seen = now
		if !t.FirstStart.IsZero() {
			t.Begun = now.Add(-max(0, now.Sub(t.FirstStart)))
		}
		t.limit(now)
		l.tasks[t.ID] = t
		l.count(t, false, t.waits())
		l.hold(t, t.State)
		if !t.Ended() {
			l.open[t.ID] = t
		}
	}
	return nil
}
