package message

import (
	"bytes"
	"unicode/utf8"
)

// skip moves behind the value at pos, in data that scan has passed.
func (s *scanner) skip() {
	depth := 0
	for {
		switch s.peek() {
		case '{', '[':
			depth++
			s.pos++
		case '}', ']':
			depth--
			s.pos++
		case '"':
			s.skipText()
		case ',', ':':
			s.pos++
			continue
		default:
			s.skipWord()
		}
		if depth == 0 {
			return
		}
	}
}

// skipWord moves behind a number, true, false or null.
func (s *scanner) skipWord() {
	for ; s.pos < len(s.data); s.pos++ {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n', ',', ']', '}':
			return
		}
	}
}

func (s *scanner) skipText() {
	for s.pos++; ; {
		s.pos += bytes.IndexByte(s.data[s.pos:], '"')
		back := s.pos
		for s.data[back-1] == '\\' {
			back--
		}
		s.pos++
		if (s.pos-1-back)%2 == 0 {
			return
		}
	}
}

// elements calls f with each value of the array or object data, which scan has passed, and with the quoted key of
// those of an object.
func elements(data []byte, f func(key, value []byte) error) error {
	s := scanner{data: data}
	object := s.peek() == '{'
	s.pos++
	for {
		if c := s.peek(); c == '}' || c == ']' {
			return nil
		} else if c == ',' {
			s.pos++
			s.space()
		}
		var key []byte
		if object {
			from := s.pos
			s.skipText()
			key = s.data[from:s.pos]
			s.peek()
			s.pos++
			s.space()
		}
		from := s.pos
		s.skip()
		if err := f(key, data[from:s.pos]); err != nil {
			return err
		}
	}
}

// unquote reads a JSON string that scan has passed.
func unquote(raw []byte) string {
	raw = raw[1 : len(raw)-1]
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for ; i >= 0; i = bytes.IndexByte(raw, '\\') {
		out = append(out, raw[:i]...)
		n := 2
		switch c := raw[i+1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			var r rune
			r, n = hexRune(raw[i:])
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
		raw = raw[i+n:]
	}
	return string(append(out, raw...))
}
