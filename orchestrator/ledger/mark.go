package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
)

// markKey is where it stands up to which status late outcomes are on record. A ledger reads on from there, so that
// none is lost that came while no orchestrator ran.
const markKey = "statuses"

// markVersion is that of what stands there.
const markVersion = 1

type mark struct {
	V   int    `json:"v"`
	Seq uint64 `json:"seq"`
}

// Mark stores that every late outcome up to a status is on record.
func (l *Ledger) Mark(ctx context.Context, seq uint64) error {
	kv, err := l.client.Bucket(ctx, broker.StateBucket)
	if err != nil {
		return fmt.Errorf("mark statuses: %w", err)
	}
	data, err := json.Marshal(mark{V: markVersion, Seq: seq})
	if err != nil {
		return err
	}
	if _, err := kv.Put(ctx, markKey, data); err != nil {
		return fmt.Errorf("mark statuses: %w", err)
	}
	return nil
}

// StatusSeq is the last status that the ledger has read.
func (l *Ledger) StatusSeq() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.statusSeq
}

// marked is the status to read on from: the one behind the mark, or behind the last one when there is no mark that can
// be read.
func (l *Ledger) marked(ctx context.Context, last uint64) (uint64, error) {
	kv, err := l.client.Bucket(ctx, broker.StateBucket)
	if err != nil {
		return 0, err
	}
	e, err := kv.Get(ctx, markKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return last + 1, nil
	}
	if err != nil {
		return 0, err
	}
	var m mark
	if err := json.Unmarshal(e.Value(), &m); err != nil || m.V != markVersion {
		l.log.Warn("mark of the statuses is not read: what came too late while no orchestrator ran is not seen", "v", m.V, "error", err)
		return last + 1, nil
	}
	return min(m.Seq, last) + 1, nil
}
