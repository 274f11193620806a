package chunk

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// Bounds of an Assembler.
const (
	DefaultMax = 64 << 20
	maxParts   = 4096
)

// An Assembler puts the blocks of one output together, in whatever order they come. The zero value is ready. It is for
// one goroutine at a time.
type Assembler struct {
	// Max is how many bytes the output may have. Default DefaultMax.
	Max int64

	parts []part // in order, with a gap between any two
	total int64  // 0 while it is not known
}

type part struct {
	start int64
	data  []byte
}

func (p part) end() int64 { return p.start + int64(len(p.data)) }

// Add takes the block that holds the bytes r. A repetition is dropped. An error means that the block was refused and
// nothing has changed: its length is not that of r, it contradicts what came before (other bytes, another total), or
// the output would be larger than Max or lie in too many separate parts.
func (a *Assembler) Add(r Range, data []byte) error {
	limit := a.Max
	if limit == 0 {
		limit = DefaultMax
	}
	switch {
	case r.Start < 0 || r.End-r.Start != int64(len(data)):
		return fmt.Errorf("%s holds %d bytes", r.Format(), len(data))
	case r.End > limit || r.Total > limit:
		return fmt.Errorf("%s: more than the %d bytes allowed", r.Format(), limit)
	case r.Total > 0 && (r.Total < a.end() || a.total > 0 && r.Total != a.total):
		return fmt.Errorf("%s: the total contradicts an earlier block", r.Format())
	case a.total > 0 && r.End > a.total:
		return fmt.Errorf("%s: beyond the total of %d", r.Format(), a.total)
	}
	if err := a.insert(part{r.Start, data}); err != nil {
		return fmt.Errorf("%s: %w", r.Format(), err)
	}
	if r.Total > 0 {
		a.total = r.Total
	}
	return nil
}

func (a *Assembler) end() int64 {
	if len(a.parts) == 0 {
		return 0
	}
	return a.parts[len(a.parts)-1].end()
}

// insert joins p with all parts that it touches.
func (a *Assembler) insert(p part) error {
	if len(p.data) == 0 {
		return nil
	}
	from, to := 0, 0 // parts[from:to] touch p
	for from < len(a.parts) && a.parts[from].end() < p.start {
		from++
	}
	for to = from; to < len(a.parts) && a.parts[to].start <= p.end(); to++ {
		old := a.parts[to]
		low, high := max(old.start, p.start), min(old.end(), p.end())
		if low < high && !bytes.Equal(old.data[low-old.start:high-old.start], p.data[low-p.start:high-p.start]) {
			return errors.New("other bytes than in an earlier block")
		}
	}
	if from == to {
		if len(a.parts) == maxParts {
			return fmt.Errorf("more than %d separate parts", maxParts)
		}
		a.parts = slices.Insert(a.parts, from, part{p.start, slices.Clone(p.data)})
		return nil
	}
	joined := a.parts[from]
	if p.start < joined.start {
		joined = part{p.start, slices.Clone(p.data[:min(joined.start, p.end())-p.start])}
		joined.data = append(joined.data, a.parts[from].data...)
	}
	for _, next := range append([]part{p}, a.parts[from+1:to]...) {
		if next.end() > joined.end() {
			joined.data = append(joined.data, next.data[joined.end()-next.start:]...)
		}
	}
	a.parts = slices.Replace(a.parts, from, to, joined)
	return nil
}

// Bytes is the output from its first byte up to the first gap. The caller must not change it.
func (a *Assembler) Bytes() []byte {
	if len(a.parts) == 0 || a.parts[0].start > 0 {
		return nil
	}
	return a.parts[0].data
}

// Missing lists the bytes that have not come, before the last that has, or before the total once it is known.
func (a *Assembler) Missing() []Range {
	var gaps []Range
	at := int64(0)
	for _, p := range a.parts {
		if p.start > at {
			gaps = append(gaps, Range{at, p.start, a.total})
		}
		at = p.end()
	}
	if at < a.total {
		gaps = append(gaps, Range{at, a.total, a.total})
	}
	return gaps
}

// Complete reports whether the total is known and every byte has come.
func (a *Assembler) Complete() bool { return a.total > 0 && int64(len(a.Bytes())) == a.total }
