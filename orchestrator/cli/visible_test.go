package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ in, line, text, coloured string }{
		"plain":              {"Grüße 👨‍👩‍👧 日本", "Grüße 👨‍👩‍👧 日本", "Grüße 👨‍👩‍👧 日本", "Grüße 👨‍👩‍👧 日本"},
		"line ends and tabs": {"a\tb\r\nc\n", `a\tb\r\nc\n`, "a\tb\nc\n", "a\tb\nc\n"},
		"carriage return":    {"100%\r  0%", `100%\r  0%`, `100%\r  0%`, `100%\r  0%`},
		"clear screen":       {"\x1b[2J", `\x1b[2J`, `\x1b[2J`, `\x1b[2J`},
		"title":              {"\x1b]0;x\x07", `\x1b]0;x\x07`, `\x1b]0;x\x07`, `\x1b]0;x\x07`},
		"colour":             {"\x1b[1;31mred\x1b[m", `\x1b[1;31mred\x1b[m`, `\x1b[1;31mred\x1b[m`, "\x1b[1;31mred\x1b[m\x1b[0m"},
		"256 and RGB":        {"\x1b[38;5;8mx\x1b[48;2;8;8;8m", `\x1b[38;5;8mx\x1b[48;2;8;8;8m`, `\x1b[38;5;8mx\x1b[48;2;8;8;8m`, "\x1b[38;5;8mx\x1b[48;2;8;8;8m\x1b[0m"},
		"concealed":          {"\x1b[1;8mx", `\x1b[1;8mx`, `\x1b[1;8mx`, `\x1b[1;8mx`},
		"private mode":       {"\x1b[?25l\x1b[>4m", `\x1b[?25l\x1b[>4m`, `\x1b[?25l\x1b[>4m`, `\x1b[?25l\x1b[>4m`},
		"unfinished":         {"\x1b[31", `\x1b[31`, `\x1b[31`, `\x1b[31`},
		"8-bit control":      {"\xc2\x9b2J \x9b2J", `\u009b2J \x9b2J`, `\u009b2J \x9b2J`, `\u009b2J \x9b2J`},
		"direction":          {"a\u202eb\u2066c", `a\u202eb\u2066c`, `a\u202eb\u2066c`, `a\u202eb\u2066c`},
		"tags":               {"a\U000e0041b", `a\udb40\udc41b`, `a\udb40\udc41b`, `a\udb40\udc41b`},
		"backspace, delete":  {"a\b\x7f", `a\x08\x7f`, `a\x08\x7f`, `a\x08\x7f`},
		"cut rune":           {"a\xe2\x82", `a\xe2\x82`, `a\xe2\x82`, `a\xe2\x82`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := visible(test.in); got != test.line {
				t.Errorf("visible(%q) = %q, want %q", test.in, got, test.line)
			}
			if got := visibleText(test.in); got != test.text {
				t.Errorf("visibleText(%q) = %q, want %q", test.in, got, test.text)
			}
			if got := written(true, test.in); got != test.coloured {
				t.Errorf("writer(%q) = %q, want %q", test.in, got, test.coloured)
			}
		})
	}
	if got := written(false, "\x1b[1;31mred\x1b[m\x1b[2J"); got != `red\x1b[2J` {
		t.Errorf("without colours: %q", got)
	}
}

// written is what a visibleWriter makes of pieces.
func written(colour bool, pieces ...string) string {
	var b bytes.Buffer
	w := newVisibleWriter(&b, colour)
	for _, p := range pieces {
		w.Write([]byte(p))
	}
	w.Close()
	return b.String()
}

var tame = regexp.MustCompile(`\x1b\[[0-9;:]*m`)

func FuzzVisible(f *testing.F) {
	for _, s := range []string{"plain é", "\x1b[1;31mred\x1b[m\r\n", "\x1b[2J\x1b]0;x\a", "\xc2\x9b\xff\xe2\x82", "\u202e\U000e0041", "\x1b[38;5;8m\x1b[8m"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, at int) {
		at = min(max(at, 0), len(s))
		whole := written(true, s)
		if cut := written(true, s[:at], s[at:]); cut != whole {
			t.Errorf("%q cut at %d is %q, whole %q", s, at, cut, whole)
		}
		for name, got := range map[string]string{
			"visible":     visible(s),
			"visibleText": strings.NewReplacer("\n", "", "\t", "").Replace(visibleText(s)),
			"writer":      strings.NewReplacer("\n", "", "\t", "").Replace(tame.ReplaceAllString(whole, "")),
			"colourless":  strings.NewReplacer("\n", "", "\t", "").Replace(written(false, s)),
		} {
			if !utf8.ValidString(got) {
				t.Errorf("%s(%q) = %q is no UTF-8", name, s, got)
			}
			for _, r := range got {
				if r < ' ' || r == 0x7f || hidden(r) {
					t.Errorf("%s(%q) = %q lets %U through", name, s, got, r)
				}
			}
		}
	})
}
