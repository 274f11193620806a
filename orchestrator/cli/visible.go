package cli

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// visible makes foreign text fit for one line of a terminal: every control character, line ends and tabs too, shows as an escape
// (\n, \x1b, \u202e), as does what is not UTF-8. Everything else stays as it is.
func visible(s string) string {
	out, _ := show(nil, []byte(s), rules{end: true})
	return string(out)
}

// visibleText does the same for a text of several lines: line ends and tabs stay.
func visibleText(s string) string {
	out, _ := show(nil, []byte(s), rules{end: true, lines: true})
	return string(out)
}

// rules of show: which control characters stay.
type rules struct {
	lines   bool // line ends and tabs; CR LF is a line end
	colours bool // sequences that colour text (SGR)
	strip   bool // such sequences vanish
	end     bool // nothing follows
}

// show appends src to dst with its control characters made visible, and returns what can't be judged before more has come.
func show(dst, src []byte, r rules) (out, rest []byte) {
	for len(src) > 0 {
		c := src[0]
		switch {
		case r.lines && (c == '\n' || c == '\t'):
			dst, src = append(dst, c), src[1:]
		case c == '\r' && r.lines && len(src) == 1 && !r.end:
			return dst, src
		case c == '\r' && r.lines && len(src) > 1 && src[1] == '\n':
			src = src[1:]
		case c == 0x1b && (r.colours || r.strip):
			n, whole := sgr(src)
			if !whole && n == len(src) && n < maxSGR && !r.end {
				return dst, src
			}
			switch {
			case !whole:
				dst, src = append(dst, `\x1b`...), src[1:]
			case r.strip:
				src = src[n:]
			default:
				dst, src = append(dst, src[:n]...), src[n:]
			}
		case c < ' ' || c == 0x7f:
			dst, src = append(dst, escape(c)...), src[1:]
		case !utf8.FullRune(src) && !r.end:
			return dst, src
		default:
			char, n := utf8.DecodeRune(src)
			switch {
			case char == utf8.RuneError && n == 1:
				dst = fmt.Appendf(dst, `\x%02x`, c)
			case hidden(char):
				dst = append(dst, escapeRune(char)...)
			default:
				dst = append(dst, src[:n]...)
			}
			src = src[n:]
		}
	}
	return dst, nil
}

func escape(c byte) string {
	switch c {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	return fmt.Sprintf(`\x%02x`, c)
}

// escapeRune is the escape that JSON has too, so that JSON stays JSON.
func escapeRune(r rune) string {
	if a, b := utf16.EncodeRune(r); a != unicode.ReplacementChar {
		return fmt.Sprintf(`\u%04x\u%04x`, a, b)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// hidden reports whether a rune moves the cursor or the text around it, or can't be seen: C1 controls, bidirectional marks, line
// separators, invisible format characters. Joiners stay: scripts and emoji need them.
func hidden(r rune) bool {
	switch r {
	case 0x200c, 0x200d:
		return false
	case 0x2028, 0x2029:
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf)
}

// maxSGR bounds a colour sequence; longer ones are none.
const maxSGR = 48

// sgr looks at an escape character and what follows: whole is true when its first n bytes are a complete sequence that only
// colours; otherwise the first n bytes could still become one.
func sgr(s []byte) (n int, whole bool) {
	if len(s) > 1 && s[1] != '[' {
		return 1, false
	}
	for n = min(2, len(s)); n < len(s) && n < maxSGR; n++ {
		switch c := s[n]; {
		case c == 'm':
			if conceals(string(s[2:n])) {
				return 1, false
			}
			return n + 1, true
		case (c < '0' || c > '9') && c != ';' && c != ':':
			return n, false
		}
	}
	return n, false
}

// conceals reports whether the parameters of a colour sequence hide text (8) rather than colour it; 38, 48 and 58 take the
// next two or four as a colour.
func conceals(params string) bool {
	list := strings.Split(params, ";")
	for i := 0; i < len(list); i++ {
		n, _ := strconv.Atoi(list[i])
		switch n {
		case 8:
			return true
		case 38, 48, 58:
			if i+1 < len(list) && list[i+1] == "5" {
				i += 2
			} else if i+1 < len(list) && list[i+1] == "2" {
				i += 4
			}
		}
	}
	return false
}

// A visibleWriter makes a stream of foreign text fit for a terminal, however it is cut into pieces. Close it.
type visibleWriter struct {
	w     io.Writer
	rules rules
	rest  []byte
	dyed  bool
}

func newVisibleWriter(w io.Writer, colour bool) *visibleWriter {
	return &visibleWriter{w: w, rules: rules{lines: true, colours: colour, strip: !colour}}
}

// Write shows p, except for a tail of a few bytes that may be the beginning of something.
func (v *visibleWriter) Write(p []byte) (int, error) {
	out, rest := show(nil, append(v.rest, p...), v.rules)
	v.rest = bytes.Clone(rest)
	v.dyed = v.dyed || bytes.IndexByte(out, 0x1b) >= 0
	if _, err := v.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close shows the tail and takes back colours that were left on.
func (v *visibleWriter) Close() error {
	last := v.rules
	last.end = true
	out, _ := show(nil, v.rest, last)
	v.rest = nil
	if v.dyed {
		out = append(out, "\x1b[0m"...)
	}
	_, err := v.w.Write(out)
	return err
}
