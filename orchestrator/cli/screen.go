package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// A screen is where text goes and what it may look like there.
type screen struct {
	w        io.Writer
	terminal bool // somebody looks at it now
	colour   bool
	width    func() int // of a terminal, in columns
}

// newScreen looks at what w is. Colours are for terminals, unless NO_COLOR is set.
func newScreen(w io.Writer, env func(string) string) *screen {
	s := &screen{w: w, width: func() int { return 80 }}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || env("TERM") == "dumb" {
		return s
	}
	s.terminal, s.colour = true, env("NO_COLOR") == ""
	s.width = func() int {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
		return 80
	}
	return s
}

// say prints one line; the text must be fit for a terminal.
func (s *screen) say(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// json prints a document of the API: as it came in a pipe, indented on a terminal.
func (s *screen) json(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if s.terminal {
		var b bytes.Buffer
		if err := json.Indent(&b, data, "", "  "); err != nil {
			return err
		}
		data = []byte(visibleText(b.String()))
	}
	_, err = s.w.Write(append(data, '\n'))
	return err
}

// jsonLine prints one line of a stream.
func (s *screen) jsonLine(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if s.terminal {
		data = []byte(visible(string(data)))
	}
	_, err = s.w.Write(append(data, '\n'))
	return err
}

// foreign is the writer for what a task wrote: raw in a pipe, without tricks on a terminal.
func (s *screen) foreign() io.WriteCloser {
	if s.terminal {
		return newVisibleWriter(s.w, s.colour)
	}
	return raw{s.w}
}

type raw struct{ io.Writer }

func (raw) Close() error { return nil }

// Colours, by what they say.
const (
	green  = "32"
	red    = "31"
	yellow = "33"
	cyan   = "36"
	dim    = "2"
	bold   = "1"
)

var stateColours = map[string]string{
	"queued": dim, "held": dim, "running": cyan, "paused": yellow, "cancelling": yellow,
	"succeeded": green, "failed": red, "cancelled": yellow, "error": red,
	"ready": green, "draining": yellow, "broken": red, "silent": red, "stopped": dim,
}

func (s *screen) paint(colour, text string) string {
	if !s.colour || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// state paints a state in its colour.
func (s *screen) state(state string) string { return s.paint(stateColours[state], visible(state)) }

// A table has a head and rows of text that is not yet made visible. On a terminal it is aligned; in a pipe it is one line per row,
// cells separated by tabs, without a head.
type table struct {
	head []string
	rows [][]string
}

func (s *screen) table(t table) {
	if !s.terminal {
		for _, row := range t.rows {
			cells := make([]string, len(row))
			for i, cell := range row {
				cells[i] = visible(cell)
			}
			s.say("%s", strings.Join(cells, "\t"))
		}
		return
	}
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(visible(cell)))
		}
	}
	for n, row := range append([][]string{t.head}, t.rows...) {
		var b strings.Builder
		for i, cell := range row {
			text := visible(cell)
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(text)+2)
			switch {
			case n == 0:
				text = s.paint(bold, text)
			default:
				state, _, _ := strings.Cut(cell, " (runner")
				text = s.paint(stateColours[state], text)
			}
			b.WriteString(text + pad)
		}
		s.say("%s", strings.TrimRight(b.String(), " "))
	}
}

// facts prints name and value, a pair a line; pairs without a value are left out.
func (s *screen) facts(pairs [][2]string) {
	width := 0
	for _, p := range pairs {
		if p[1] != "" {
			width = max(width, len(p[0]))
		}
	}
	for _, p := range pairs {
		if p[1] != "" {
			s.say("%s%s  %s", s.paint(dim, p[0]), strings.Repeat(" ", width-len(p[0])), p[1])
		}
	}
}
