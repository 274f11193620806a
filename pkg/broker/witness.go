package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// patience is how long a broker may need until it says what it holds: nodes start, a leader is elected, and has still to
// read what the one before it has stored. A question that meets none of that has no answer at all.
const (
	patience = 10 * time.Second
	answer   = 2 * time.Second
	askAgain = 250 * time.Millisecond
)

// WitnessConfig is what a Witness needs.
type WitnessConfig struct {
	// Path is the file of its record. One process at a time uses it.
	Path string

	// URL is where the broker is, as Config has it.
	URL string

	// AcceptLoss goes on with what the broker holds, although more was recorded, with a warning for each thing that is
	// missing. Without it that is ErrStoreDamaged.
	AcceptLoss bool

	// Log gets what is accepted, and what is lost while Run runs. Default: nowhere.
	Log *slog.Logger
}

// A Witness records what a broker of somebody else's holds: when each stream was made, and where it ends. What a stream
// lets go, by age or by a purge, is no loss. Call Check, then Begin, then Run; one after the other.
type Witness struct {
	recorder
	c    *Client
	seen map[string]holding
	less bool // Run has found less than was recorded
}

// NewWitness has not looked at anything yet.
func NewWitness(c *Client, cfg WitnessConfig) *Witness {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	where := place(cfg.URL)
	return &Witness{c: c, recorder: recorder{
		of: "broker at " + where, path: cfg.Path, accept: cfg.AcceptLoss, log: cfg.Log, kind: record{URL: where},
	}}
}

// place is a broker's URL without what is secret in it.
func place(urls string) string {
	var all []string
	for text := range strings.SplitSeq(urls, ",") {
		if u, err := url.Parse(text); err == nil {
			u.User = nil
			text = u.String()
		}
		all = append(all, text)
	}
	return strings.Join(all, ",")
}

// Check holds the broker against the record, before anything is made there: ErrStoreDamaged when it holds less or is
// another one. Where it does not say, it is asked again for patience; then the error is that it did not.
func (w *Witness) Check(ctx context.Context) error {
	wrong, err := w.read()
	if err == nil && len(wrong) == 0 {
		wrong, err = w.compare(ctx)
	}
	if err != nil {
		return err
	}
	if was := w.old.URL; len(wrong) > 0 && was != "" && was != w.kind.URL {
		wrong = append([]string{"the record is of the broker at " + was}, wrong...)
	}
	return w.refuse(wrong)
}

// compare says what the broker has less than the record. A node of a cluster is not believed at once that something is
// not there: a leader that was elected just now may still be behind.
func (w *Witness) compare(ctx context.Context) (wrong []string, err error) {
	for end := time.Now().Add(patience); ; {
		found, err := w.ask(ctx)
		if err == nil {
			wrong = w.old.less(found)
			if len(wrong) == 0 || w.c.nc.ConnectedClusterName() == "" {
				return wrong, nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case time.Now().Before(end):
		case err != nil:
			return nil, fmt.Errorf("%s does not say what it holds: %w", w.of, err)
		default:
			return wrong, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}

// ask is one look at the streams of the record. It does not wait for an answer that will not come.
func (w *Witness) ask(ctx context.Context) (map[string]holding, error) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	return w.c.holdings(ctx, slices.Collect(maps.Keys(w.old.Streams)))
}

// Begin writes a new record, of the streams that are there now. They end in it where they did in the one that was
// checked: more of them was not seen long enough ago.
func (w *Witness) Begin(ctx context.Context) error {
	found, err := w.c.held(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", w.of, err)
	}
	w.seen = found
	sure := maps.Clone(found)
	for name, h := range sure {
		h.Last = w.old.Streams[name].Last
		sure[name] = h
	}
	return w.write(record{Seen: time.Now(), Streams: sure})
}

// Run refreshes the record until ctx ends. When the broker loses something meanwhile the record stays as it is, and the
// next Check finds that.
func (w *Witness) Run(ctx context.Context) error {
	w.run(ctx, w.seen, func(ctx context.Context) map[string]holding {
		found, err := w.c.held(ctx)
		if err != nil {
			return nil // it is away, which others say
		}
		lost := record{Streams: w.now}.less(found)
		if len(lost) > 0 && !w.less {
			w.log.Error("broker holds less than it did: the next start refuses it", "broker", w.of, "what", lost)
		} else if len(lost) == 0 && w.less {
			w.log.Info("broker holds again what it did", "broker", w.of)
		}
		if w.less = len(lost) > 0; w.less {
			return nil
		}
		return found
	})
	return nil
}

// held is what every stream of ours holds.
func (c *Client) held(ctx context.Context) (map[string]holding, error) {
	names, err := c.Streams(ctx)
	if err != nil {
		return nil, err
	}
	return c.holdings(ctx, names)
}

// holdings is what the streams of these names hold. One that the broker does not have is left out.
func (c *Client) holdings(ctx context.Context, names []string) (map[string]holding, error) {
	found := map[string]holding{}
	for _, name := range names {
		info, err := c.StreamInfo(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[name] = holding{Created: info.Created.UTC(), Last: info.State.LastSeq}
	}
	return found, nil
}
