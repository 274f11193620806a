// Package chunk cuts long output into blocks, names which bytes of the whole a block holds, and puts blocks together
// again. It does not know the messages that carry them.
package chunk

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is the most bytes of output that one block holds.
const Size = 262144

// A Range says which bytes of a step's output a block holds: Start inclusive, End exclusive, and how many there are in
// all once that is known.
type Range struct {
	Start, End int64
	Total      int64 // 0 when it is not known
}

// Format writes the range as the protocol does: "bytes 0-262144 of 524288", or "bytes 0-262144" without a total.
func (r Range) Format() string {
	if r.Total > 0 {
		return fmt.Sprintf("bytes %d-%d of %d", r.Start, r.End, r.Total)
	}
	return fmt.Sprintf("bytes %d-%d", r.Start, r.End)
}

// Parse reads what Format writes, and numbers in KiB ("bytes 0-256k").
func Parse(s string) (Range, error) {
	bad := fmt.Errorf("must be like %q or %q", "bytes 0-262144", "bytes 0-262144 of 524288")
	text, ok := strings.CutPrefix(s, "bytes ")
	if !ok {
		return Range{}, bad
	}
	span, total, whole := strings.Cut(text, " of ")
	start, end, ok := strings.Cut(span, "-")
	var r Range
	var okStart, okEnd, okTotal bool
	r.Start, okStart = number(start)
	r.End, okEnd = number(end)
	if whole {
		r.Total, okTotal = number(total)
	}
	if !ok || !okStart || !okEnd || whole != okTotal {
		return Range{}, bad
	}
	if r.End < r.Start || whole && r.Total < r.End {
		return Range{}, fmt.Errorf("names bytes that end before they begin or beyond the whole")
	}
	return r, nil
}

func number(s string) (int64, bool) {
	digits, kilo := strings.CutSuffix(s, "k")
	if digits == "" || len(digits) > 15 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if kilo {
		n *= 1024
	}
	return n, err == nil
}
