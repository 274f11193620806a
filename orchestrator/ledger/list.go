package ledger

import (
	"encoding/base64"
	"errors"
	"slices"
	"sort"
	"strconv"
	"time"

	"chiffon/orchestrator/view"
)

// A Query chooses tasks. Zero fields choose all.
type Query struct {
	States    []string
	AgentType string
	Agent     string // that holds it, held it last, or was asked for
	WorkType  string
	Labels    map[string]string
	Since     time.Time // submitted at or after
	Until     time.Time // submitted before
	Limit     int       // default 50
	Cursor    string    // where an earlier answer ended
}

// ErrCursor comes back from List for a cursor that no answer has given.
var ErrCursor = errors.New("cursor is not one that a list has given")

// List returns the newest tasks that a query chooses, and a cursor for those behind them ("" when there are none).
// Tasks that come meanwhile do not shift a cursor.
func (l *Ledger) List(q Query) (found []view.Task, cursor string, err error) {
	before, err := readCursor(q.Cursor)
	if err != nil {
		return nil, "", err
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 50
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := len(l.order)
	if before > 0 {
		n = sort.Search(n, func(i int) bool { return l.order[i].FirstSeq >= before })
	}
	var last uint64
	for _, t := range slices.Backward(l.order[:n]) {
		if !q.chooses(t) {
			continue
		}
		if len(found) == limit {
			return found, writeCursor(last), nil
		}
		found, last = append(found, t.View()), t.FirstSeq
	}
	return found, "", nil
}

func (q Query) chooses(t *Task) bool {
	switch {
	case len(q.States) > 0 && !slices.Contains(q.States, t.StateName()),
		q.AgentType != "" && q.AgentType != string(t.Type),
		q.Agent != "" && q.Agent != t.State.Holder && q.Agent != t.Agent,
		q.WorkType != "" && q.WorkType != t.WorkType,
		!q.Since.IsZero() && t.SubmittedAt.Before(q.Since),
		!q.Until.IsZero() && !t.SubmittedAt.Before(q.Until):
		return false
	}
	for k, v := range q.Labels {
		if got, ok := t.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func writeCursor(seq uint64) string {
	return base64.RawURLEncoding.EncodeToString([]byte("t" + strconv.FormatUint(seq, 36)))
}

func readCursor(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) < 2 || b[0] != 't' {
		return 0, ErrCursor
	}
	seq, err := strconv.ParseUint(string(b[1:]), 36, 64)
	if err != nil || seq == 0 {
		return 0, ErrCursor
	}
	return seq, nil
}
