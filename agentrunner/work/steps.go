package work

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// A stepRule says how the steps of the work are recognised in its output.
type stepRule struct {
	pattern *regexp.Regexp // the line with which a step begins
	name    int            // the group that holds its name; 0 is the whole match
	total   int            // the group that holds how many there are; 0 is none

	number       int            // how many there are, if the file says
	announced    *regexp.Regexp // a line of the output whose first group says how many
	command      []item         // a command that lists them
	listed       *regexp.Regexp // the lines of its output that count; nil is every line that is not empty
	listedByName bool           // a group "name" holds the name that the step will have
}

func (r *reader) steps(t *Type, m mapping) {
	n := m.value["steps"]
	if n == nil {
		return
	}
	s := r.mapping(n, "steps", "pattern", "total")
	rule := &stepRule{pattern: r.pattern(s, "pattern")}
	if rule.pattern == nil {
		if !s.has("pattern") {
			r.wrong(n, `add pattern: '^== (?P<name>.*)'`, "steps has no pattern")
		}
		return
	}
	rule.name, rule.total = max(rule.pattern.SubexpIndex("name"), 0), max(rule.pattern.SubexpIndex("total"), 0)
	if rule.name == 0 {
		// The first group, unless it is a named one that means something else.
		for i, name := range rule.pattern.SubexpNames() {
			if i > 0 && name == "" {
				rule.name = i
				break
			}
		}
	}
	t.steps = rule
	if total := s.value["total"]; total != nil {
		r.total(t, rule, s, total)
	}
}

func (r *reader) total(t *Type, rule *stepRule, s mapping, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		rule.number = r.positive(s, "total", 0)
		return
	}
	m := r.mapping(n, "total", "command", "pattern")
	pattern := r.pattern(m, "pattern")
	switch {
	case m.has("command"):
		rule.command, rule.listed = r.command(t, m.value["command"], "the command of total"), pattern
		rule.listedByName = pattern != nil && pattern.SubexpIndex("name") > 0
	case pattern == nil:
		r.wrong(n, "write total: 7, or one of {command: [...]} and {pattern: '(\\d+) steps'}", "total says not where the number comes from")
	case pattern.NumSubexp() == 0:
		r.wrong(n, "put parentheses around the number", "the pattern of total has no group")
	default:
		rule.announced = pattern
	}
}

// listing is what a total command said.
func (rule *stepRule) listing(output []byte) (names []string, total int) {
	for line := range bytes.Lines(output) {
		line = bare(line)
		if rule.listed == nil {
			if len(bytes.TrimSpace(line)) > 0 {
				total++
			}
			continue
		}
		if m := rule.listed.FindSubmatch(line); m != nil {
			total++
			if rule.listedByName {
				names = append(names, string(m[rule.listed.SubexpIndex("name")]))
			}
		}
	}
	return names, total
}

// maxLine is how much of a line is looked at to recognise a step.
const maxLine = 8 << 10

// A stepper cuts output into steps on its way to a sink.
type stepper struct {
	rule    *stepRule
	out     Sink
	line    []byte   // what has come of the current line
	names   []string // of the steps that a listing promised and that have not come yet
	total   int      // 0 while it is not known
	number  int      // of the current step; 0 before the first
	current string
	percent int // never goes back
}

// Output passes p on, and the steps that begin in it at their places. A step begins with the first byte of its line,
// or where the part of the line begins that came with its end.
func (s *stepper) Output(p []byte) {
	if s.rule == nil {
		s.out.Output(p)
		return
	}
	from := 0 // what has not been passed on yet
	for at := 0; at < len(p); {
		end, complete := len(p), false
		if i := bytes.IndexByte(p[at:], '\n'); i >= 0 {
			end, complete = at+i+1, true
		}
		s.line = append(s.line, p[at:min(end, at+max(0, maxLine-len(s.line)))]...)
		if complete {
			if name, ok := s.begins(bare(s.line)); ok {
				if at > from {
					s.out.Output(p[from:at])
					from = at
				}
				s.next(name)
			}
			s.line = s.line[:0]
		}
		at = end
	}
	if from < len(p) {
		s.out.Output(p[from:])
	}
}

// begins judges a whole line.
func (s *stepper) begins(line []byte) (name string, ok bool) {
	if s.rule.announced != nil {
		if m := s.rule.announced.FindSubmatch(line); m != nil {
			s.announce(m[1])
		}
	}
	m := s.rule.pattern.FindSubmatch(line)
	if m == nil {
		return "", false
	}
	if s.rule.total > 0 {
		s.announce(m[s.rule.total])
	}
	name = string(bytes.TrimSpace(m[s.rule.name]))
	if name == "" {
		name = "step " + strconv.Itoa(s.number+1)
	}
	return name, true
}

func (s *stepper) announce(digits []byte) {
	if n, err := strconv.Atoi(string(digits)); err == nil && n > s.total && n < 1<<20 {
		s.total = n
	}
}

// next ends the current step and begins another.
func (s *stepper) next(name string) {
	s.completed()
	if s.rule.listedByName && s.total > 0 {
		if i := slices.Index(s.names, name); i >= 0 {
			s.names = slices.Delete(s.names, i, i+1)
		} else {
			s.total++ // nobody had promised this one
		}
	}
	s.number++
	s.current = name
	if s.total > 0 {
		s.total = max(s.total, s.number)
	}
	s.out.Step(Step{Number: s.number, Name: name, Percent: s.done(s.number - 1)})
}

// completed reports that the current step went well.
func (s *stepper) completed() {
	if s.number > 0 {
		s.out.Step(Step{Number: s.number, Name: s.current, Percent: s.done(s.number), Done: true})
	}
}

// done is the percentage when n steps are done. 100 is for the end alone.
func (s *stepper) done(n int) *int {
	if s.total == 0 {
		return nil
	}
	s.percent = max(s.percent, min(n*100/s.total, 99))
	return new(s.percent)
}

var colour = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// bare is a line without its end and without what only a terminal understands.
func bare(line []byte) []byte {
	line = bytes.TrimRight(line, "\r\n")
	if bytes.IndexByte(line, 0x1b) >= 0 {
		line = colour.ReplaceAll(line, nil)
	}
	return line
}
