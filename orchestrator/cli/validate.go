package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"chiffon/pkg/fault"
	"chiffon/pkg/message"
)

func newValidate(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE|-…",
		Short: "Judge protocol messages",
		Long: "Judge protocol messages: a file has one JSON value, or one on each line. Prints the kind of each that is well-formed, and\n" +
			"the code and field of what is wrong with any other. Ends with 1 if one is bad. Needs no server.",
		Example: `  orchestrator validate request.json
  nats sub --raw 'chiffon.task.>' | orchestrator validate -`,
		Args: arguments(1, -1, "FILE or - for standard input"),
		RunE: func(_ *cobra.Command, args []string) error {
			bad := false
			for _, name := range args {
				data, err := readFile(name, p.in)
				if err != nil {
					return err
				}
				for _, v := range judge(data) {
					bad = bad || !v.OK
					if err := p.verdict(name, v); err != nil {
						return err
					}
				}
			}
			if bad {
				return &Exit{Code: ExitUsage}
			}
			return nil
		},
	}
}

// A verdict on one message. Line is where it stands among several; 0 when it is alone.
type verdict struct {
	Line    int        `json:"line,omitempty"`
	OK      bool       `json:"ok"`
	Kind    string     `json:"kind,omitempty"`
	Code    fault.Code `json:"error_code,omitempty"`
	Field   string     `json:"field,omitempty"`
	Message string     `json:"error_message,omitempty"`
}

// judge reads a file: as lines if one of them is an object by itself, else as one value.
func judge(data []byte) []verdict {
	lines := bytes.Split(data, []byte("\n"))
	several := false
	for _, line := range lines {
		line = bytes.TrimSpace(line)
		several = several || bytes.HasPrefix(line, []byte("{")) && json.Valid(line)
	}
	if !several || json.Valid(data) {
		return []verdict{judgeOne(data)}
	}
	var list []verdict
	for i, line := range lines {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		v := judgeOne(line)
		v.Line = i + 1
		list = append(list, v)
	}
	return list
}

func judgeOne(data []byte) verdict {
	m, err := message.Read(data)
	if err == nil {
		return verdict{OK: true, Kind: string(m.Kind)}
	}
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return verdict{Code: f.Code, Field: f.Field(), Message: f.Message}
	}
	return verdict{Code: fault.InvalidMessage, Message: err.Error()}
}

func (p *program) verdict(name string, v verdict) error {
	if p.json() {
		return p.out.jsonLine(v)
	}
	place := name
	if v.Line > 0 {
		place = fmt.Sprintf("%s:%d", name, v.Line)
	}
	if v.OK {
		p.out.say("%s: %s %s", visible(place), p.out.paint(green, "ok"), v.Kind)
		return nil
	}
	p.out.say("%s: %s %s", visible(place), p.out.paint(red, fmt.Sprint(int(v.Code))), visible(v.Message))
	return nil
}
