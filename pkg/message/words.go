package message

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"chiffon/pkg/subject"
)

// A UUID is 8-4-4-4-12 hex digits in lower case, of any version.
type UUID string

const nilUUID UUID = "00000000-0000-0000-0000-000000000000"

// NewUUID makes a random one, version 4.
func NewUUID() UUID {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return UUID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

// ParseUUID reads one in any case.
func ParseUUID(s string) (UUID, error) {
	if s == "" {
		return "", errors.New("is empty, not a UUID")
	}
	ok := len(s) == 36
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			ok = c == '-'
		} else {
			ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
		}
	}
	if !ok {
		return "", errors.New("must be a UUID, 8-4-4-4-12 hex digits")
	}
	return UUID(strings.ToLower(s)), nil
}

// A Timestamp is a time that is passed on in the form it was sent in. The zero value is no time and can't be sent.
type Timestamp struct {
	time.Time
	text string
}

// Now is the current time, to be written as RFC 3339 in UTC.
func Now() Timestamp { return Timestamp{Time: time.Now().UTC().Truncate(time.Microsecond)} }

// At is a Timestamp of t.
func At(t time.Time) Timestamp { return Timestamp{Time: t.Round(0).UTC()} }

// parseTime reads RFC 3339, and of ISO 8601 also a comma before the fraction, an offset without colon or minutes,
// and none (UTC).
func parseTime(s string) (time.Time, error) {
	if len(s) >= 19 && s[10] == 'T' && s[13] == ':' {
		for _, layout := range [...]string{
			time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07",
		} {
			t, err := time.Parse(layout, s)
			if t = t.UTC(); err == nil && t.Year() >= 0 && t.Year() <= 9999 {
				return t, nil
			}
		}
	}
	return time.Time{}, wrongf("", "must be a time like 2026-01-19T04:21:04Z")
}

func appendTime(b []byte, t time.Time) ([]byte, error) {
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return nil, wrongf("", "has the year %d, which can't be written", y)
	}
	return append(t.AppendFormat(append(b, '"'), time.RFC3339Nano), '"'), nil
}

// A party is a sender or recipient of an envelope: an agent type, or the orchestrator.
type party subject.AgentType

func (p party) check() error {
	if p == subject.Orchestrator {
		return nil
	}
	return subject.AgentType(p).Check()
}
