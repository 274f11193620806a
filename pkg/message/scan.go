package message

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of what is read and written.
const (
	MaxSize  = 4 << 20 // bytes of a message: what the broker takes
	MaxDepth = 64      // objects and arrays inside each other
)

// scan says what is wrong with data as one JSON text: syntax, UTF-8, a key that an object has twice, too deep, or
// something behind it. After it data can be walked without looking for errors. What it passes, encoding/json reads.
func scan(data []byte) error {
	if len(data) > MaxSize {
		return wrongf("", "has %d bytes, more than the %d allowed", len(data), MaxSize)
	}
	if !utf8.Valid(data) {
		return wrongf("", "is not valid UTF-8")
	}
	s := scanner{data: data}
	if err := s.value(1); err != nil {
		return err
	}
	s.space()
	if s.pos < len(data) {
		return wrongf("", "has something behind the JSON value, at byte %d", s.pos)
	}
	return nil
}

type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) bad(what string) error {
	if s.pos >= len(s.data) {
		return wrongf("", "is not JSON: ends too early, %s", what)
	}
	return wrongf("", "is not JSON: %s at byte %d", what, s.pos)
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek skips white space and returns the byte behind it, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos == len(s.data) {
		return 0
	}
	return s.data[s.pos]
}

func (s *scanner) value(depth int) error {
	if depth > MaxDepth+1 {
		return wrongf("", "is nested more than %d levels deep", MaxDepth)
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.array(depth)
	case c == '"':
		return s.text()
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.bad("a value was expected")
}

func (s *scanner) object(depth int) error {
	if depth > MaxDepth {
		return wrongf("", "is nested more than %d levels deep", MaxDepth)
	}
	s.pos++
	var few [16]string
	keys := keySet{few: few[:0]}
	for first := true; ; first = false {
		c := s.peek()
		if c == '}' && first {
			s.pos++
			return nil
		}
		if c != '"' {
			return s.bad("a key was expected")
		}
		from := s.pos
		if err := s.text(); err != nil {
			return err
		}
		to := s.pos
		if key := unquote(s.data[from:to]); keys.had(key) {
			return wrongf(key, "is there twice in one object")
		}
		if s.peek() != ':' {
			return s.bad("a colon was expected")
		}
		s.pos++
		if err := s.value(depth + 1); err != nil {
			return within(unquote(s.data[from:to]), err)
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return nil
		default:
			return s.bad("a comma or } was expected")
		}
	}
}

// A keySet remembers the keys of one object: few in a row, many in a map.
type keySet struct {
	few  []string
	many map[string]bool
}

func (k *keySet) had(key string) bool {
	if k.many != nil {
		had := k.many[key]
		k.many[key] = true
		return had
	}
	if slices.Contains(k.few, key) {
		return true
	}
	if len(k.few) < cap(k.few) {
		k.few = append(k.few, key)
		return false
	}
	k.many = map[string]bool{key: true}
	for _, old := range k.few {
		k.many[old] = true
	}
	return false
}

func (s *scanner) array(depth int) error {
	if depth > MaxDepth {
		return wrongf("", "is nested more than %d levels deep", MaxDepth)
	}
	s.pos++
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := s.value(depth + 1); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return nil
		default:
			return s.bad("a comma or ] was expected")
		}
	}
}

func (s *scanner) text() error {
	for s.pos++; s.pos < len(s.data); {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < ' ':
			return s.bad("a control character in a string")
		default:
			s.pos++
		}
	}
	return s.bad("a string is open")
}

// escape reads one escape sequence. Half of a surrogate pair stands for no character, and would change on its way.
func (s *scanner) escape() error {
	rest := s.data[s.pos:]
	if len(rest) < 2 {
		s.pos = len(s.data)
		return s.bad("a string is open")
	}
	switch rest[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
		_, n := hexRune(rest)
		if n == 0 {
			return s.bad(`\u without four hex digits, or half of a surrogate pair,`)
		}
		s.pos += n
		return nil
	}
	return s.bad("an unknown escape sequence")
}

// hexRune reads \uXXXX, or two of them that are a surrogate pair; n is 0 when it is neither.
func hexRune(b []byte) (r rune, n int) {
	hex := func(b []byte) rune {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return -1
		}
		var r rune
		for _, c := range b[2:6] {
			switch {
			case c >= '0' && c <= '9':
				c -= '0'
			case c >= 'a' && c <= 'f':
				c -= 'a' - 10
			case c >= 'A' && c <= 'F':
				c -= 'A' - 10
			default:
				return -1
			}
			r = r<<4 | rune(c)
		}
		return r
	}
	r = hex(b)
	switch {
	case r < 0:
		return 0, 0
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	if r = utf16.DecodeRune(r, hex(b[6:])); r == utf8.RuneError {
		return 0, 0
	}
	return r, 12
}

func (s *scanner) number() error {
	digits := func() bool {
		from := s.pos
		for s.pos < len(s.data) && s.data[s.pos] >= '0' && s.data[s.pos] <= '9' {
			s.pos++
		}
		return s.pos > from
	}
	is := func(a, b byte) bool {
		return s.pos < len(s.data) && (s.data[s.pos] == a || s.data[s.pos] == b)
	}
	if is('-', '-') {
		s.pos++
	}
	if is('0', '0') {
		s.pos++
	} else if !digits() {
		return s.bad("a digit was expected")
	}
	if is('.', '.') {
		if s.pos++; !digits() {
			return s.bad("a digit was expected")
		}
	}
	if is('e', 'E') {
		if s.pos++; is('+', '-') {
			s.pos++
		}
		if !digits() {
			return s.bad("a digit was expected")
		}
	}
	return nil
}

func (s *scanner) word(w string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(w)) {
		return s.bad("a value was expected")
	}
	s.pos += len(w)
	return nil
}
