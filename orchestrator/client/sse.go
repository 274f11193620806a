package client

import (
	"bufio"
	"bytes"
	"io"
)

// maxEvent bounds one server-sent event: a protocol message of 4 MiB, escaped, inside another JSON.
const maxEvent = 32 << 20

// A frame is one server-sent event as it came. A comment or a blank keep-alive has no data.
type frame struct {
	id   string
	data []byte
}

// sse reads server-sent events: the subset that has id and data, lines ending in LF or CRLF.
type sse struct{ lines *bufio.Scanner }

func newSSE(r io.Reader) *sse {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	return &sse{lines: lines}
}

// next returns the next event that has data; alive is called for each line, comments too. io.EOF means that the stream ended between
// two events; what came of an unfinished one is dropped, as the standard wants.
func (s *sse) next(alive func()) (frame, error) {
	var f frame
	var data [][]byte
	size := 0
	for s.lines.Scan() {
		alive()
		line := s.lines.Bytes()
		if len(line) == 0 {
			if data == nil {
				f = frame{}
				continue
			}
			f.data = bytes.Join(data, []byte("\n"))
			return f, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			f.id = string(value)
		case "data":
			if size += len(value) + 1; size > maxEvent {
				return frame{}, bufio.ErrTooLong
			}
			data = append(data, bytes.Clone(value))
		}
	}
	if err := s.lines.Err(); err != nil {
		return frame{}, err
	}
	if data != nil || f.id != "" {
		return frame{}, io.ErrUnexpectedEOF
	}
	return frame{}, io.EOF
}
