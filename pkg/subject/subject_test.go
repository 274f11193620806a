package subject

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

const (
	task  TaskID  = "0a8d1f6e-52c7-8e1b-9b1e-3f2a6c5d4e7f"
	agent AgentID = "web-1"
)

// built is what each builder and constant of the package gives for the values that the examples of subjects.md use.
var built = map[string]string{
	"Task":          Task(task),
	"Request":       Request(task, "infra", Any, High),
	"Event":         Event(task, string(agent)),
	"Status":        Status(task, agent),
	"Heartbeat":     Heartbeat(agent),
	"Poke":          Poke(agent),
	"Call":          Call(agent, "get"),
	"Mail":          Mail(agent, High),
	"Audit":         Audit("refusal"),
	"ForType":       ForType("infra", High),
	"ForAgent":      ForAgent(agent, High),
	"AllRequests":   AllRequests,
	"AllEvents":     AllEvents,
	"AllStatuses":   AllStatuses,
	"AllMail":       AllMail,
	"AllAudit":      AllAudit,
	"AllHeartbeats": AllHeartbeats,
	"AllPokes":      AllPokes,
	"AllCalls":      AllCalls,
}

// A row of subjects.md.
type row struct{ subject, what, builder, example string }

// rows reads the tables of subjects.md.
func rows(t *testing.T) (list []row) {
	t.Helper()
	text, err := os.ReadFile("../../subjects.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cell := strings.Split(line, "|")
		if len(cell) == 7 && strings.HasPrefix(cell[1], " `chiffon.") {
			bare := func(i int) string { return strings.Trim(cell[i], " `") }
			list = append(list, row{bare(1), bare(2) + " " + bare(3), bare(4), bare(5)})
		}
	}
	return list
}

// inCode lists what the package exports that spells a subject: functions with a literal that begins with "chiffon.",
// and constants that do.
func inCode(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "subject.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	spells := func(n ast.Node) (found bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			found = found || ok && strings.HasPrefix(lit.Value, `"chiffon.`)
			return !found
		})
		return found
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && spells(d) {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && v.Names[0].IsExported() && spells(v) {
					names = append(names, v.Names[0].Name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// matches says whether a subject of the table, with its <words> or NATS wildcards, covers an example.
func matches(pattern, s string) bool {
	p, part := strings.Split(pattern, "."), strings.Split(s, ".")
	if len(p) != len(part) {
		return false
	}
	for i := range p {
		if !strings.HasPrefix(p[i], "<") && p[i] != part[i] {
			return false
		}
	}
	return true
}

func TestTextAndCodeAreOne(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, r := range rows(t) {
		documented = append(documented, r.builder)
		got, ok := built[r.builder]
		if !ok || got != r.example {
			t.Errorf("subjects.md, %s: %s gives %q, the example says %q", r.subject, r.builder, got, r.example)
		}
		if !matches(r.subject, r.example) {
			t.Errorf("subjects.md: the example %s is no %s", r.example, r.subject)
		}
	}
	slices.Sort(documented)
	if code := inCode(t); !slices.Equal(documented, code) {
		t.Errorf("subjects.md has %q,\npkg/subject has %q", documented, code)
	}
	if tested := slices.Sorted(maps.Keys(built)); !slices.Equal(documented, tested) {
		t.Errorf("subjects.md has %q,\nthis test has %q", documented, tested)
	}
}

func TestTextNamesStreamsAndConsumers(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"AllRequests": TasksStream,
		"AllEvents":   TasksStream,
		"AllStatuses": StatusStream,
		"AllMail":     MailStream,
		"AllAudit":    AuditStream,
		"ForType":     TypeConsumer("<agent_type>", "<priority>"),
		"ForAgent":    AgentConsumer("<agent_id>", "<priority>"),
	}
	for _, r := range rows(t) {
		if name, ok := want[r.builder]; ok && !strings.Contains(r.what, name) {
			t.Errorf("subjects.md, %s: want %s in %q", r.subject, name, r.what)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		subject string
		want    Parsed
		ok      bool
	}{
		"a request for any":      {Request(task, "infra", Any, Low), Parsed{task, "request", Orchestrator, "infra", Any, Low}, true},
		"a request for an agent": {Request(task, "infra", "web-1", High), Parsed{task, "request", Orchestrator, "infra", "web-1", High}, true},
		"a held request":         {Request(task, "code", Held, Normal), Parsed{task, "request", Orchestrator, "code", Held, Normal}, true},
		"an agent's event":       {Event(task, "web-1"), Parsed{Task: task, Verb: "event", Writer: "web-1"}, true},
		"our event":              {Event(task, Orchestrator), Parsed{Task: task, Verb: "event", Writer: Orchestrator}, true},
		"a status":               {Status(task, agent), Parsed{Task: task, Verb: "status", Writer: "web-1"}, true},
		"upper case when built":  {Event("0A8D1F6E-52C7-8E1B-9B1E-3F2A6C5D4E7F", "web-1"), Parsed{Task: task, Verb: "event", Writer: "web-1"}, true},
		"upper case by hand":     {"chiffon.task.0A8D1F6E-52C7-8E1B-9B1E-3F2A6C5D4E7F.event.web-1", Parsed{}, false},
		"nothing":                {"", Parsed{}, false},
		"another program's":      {"acme.task.x.event.y", Parsed{}, false},
		"a heartbeat":            {Heartbeat(agent), Parsed{}, false},
		"an unknown verb":        {"chiffon.task.x.result.y", Parsed{}, false},
		"a request cut short":    {"chiffon.task.x.request.infra.any", Parsed{}, false},
		"a request too long":     {"chiffon.task.x.request.infra.any.low.y", Parsed{}, false},
		"an event too long":      {"chiffon.task.x.event.y.z", Parsed{}, false},
		"a task and no more":     {"chiffon.task.x", Parsed{}, false},
		"the filter of one task": {Task(task), Parsed{}, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if got, ok := Parse(c.subject); got != c.want || ok != c.ok {
				t.Errorf("Parse(%q) = %+v, %v, want %+v, %v", c.subject, got, ok, c.want, c.ok)
			}
		})
	}
}

// FuzzParse: what parses is exactly what the builders give for its parts.
func FuzzParse(f *testing.F) {
	for _, s := range built {
		f.Add(s)
	}
	f.Add("chiffon.task..event.")
	f.Add("chiffon.task.x.request.infra.any.low.")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := Parse(s)
		if !ok {
			if p != (Parsed{}) {
				t.Fatalf("Parse(%q) = %+v, false; want nothing", s, p)
			}
			return
		}
		var again string
		switch p.Verb {
		case "request":
			again = Request(p.Task, p.Type, p.Target, p.Priority)
		case "event":
			again = Event(p.Task, p.Writer)
		case "status":
			again = Status(p.Task, AgentID(p.Writer))
		}
		// Builders write a task id in lower case, whatever they are given.
		if want := strings.Replace(s, string(p.Task), strings.ToLower(string(p.Task)), 1); again != want {
			t.Fatalf("Parse(%q) = %+v, which builds %q", s, p, again)
		}
	})
}

func TestAgentOfAndVerbOf(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]struct {
		agent AgentID
		verb  string
	}{
		Heartbeat(agent):           {"web-1", "heartbeat"},
		Call(agent, "query-tasks"): {"web-1", "query-tasks"},
		Mail(agent, High):          {"", "high"},
		Event(task, "web-1"):       {"", "web-1"},
		"chiffon.api.web-1":        {"", "web-1"},
		"":                         {"", ""},
	} {
		if got := AgentOf(s); got != want.agent {
			t.Errorf("AgentOf(%q) = %q, want %q", s, got, want.agent)
		}
		if got := VerbOf(s); got != want.verb {
			t.Errorf("VerbOf(%q) = %q, want %q", s, got, want.verb)
		}
	}
}

func TestPriorities(t *testing.T) {
	t.Parallel()
	for _, p := range Priorities {
		if got, err := ParsePriority(string(p)); got != p || err != nil {
			t.Errorf("ParsePriority(%q) = %q, %v", p, got, err)
		}
	}
	for _, s := range []string{"", "medium"} {
		if got, err := ParsePriority(s); got != Normal || err != nil {
			t.Errorf("ParsePriority(%q) = %q, %v, want normal", s, got, err)
		}
	}
	for _, s := range []string{"High", "urgent", "1", " low"} {
		if got, err := ParsePriority(s); err == nil || got != "" {
			t.Errorf("ParsePriority(%q) = %q, want an error", s, got)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	for s, want := range map[string]struct{ id, typ bool }{
		"web-1":        {true, true},
		"infra":        {true, true},
		"a":            {true, true},
		"a-":           {true, true},
		long:           {true, true},
		long + "a":     {false, false},
		"":             {false, false},
		"under_score":  {false, true},
		"1web":         {false, false},
		"-web":         {false, false},
		"_web":         {false, false},
		"Web":          {false, false},
		"web.1":        {false, false},
		"web 1":        {false, false},
		"web*":         {false, false},
		"web>":         {false, false},
		"wéb":          {false, false},
		"web\n":        {false, false},
		"orchestrator": {false, false},
		"any":          {false, true},
		"held":         {false, true},
		"critical":     {false, true},
		"low":          {false, true},
	} {
		if err := AgentID(s).Check(); (err == nil) != want.id {
			t.Errorf("AgentID(%q).Check() = %v, want ok %v", s, err, want.id)
		}
		if err := AgentType(s).Check(); (err == nil) != want.typ {
			t.Errorf("AgentType(%q).Check() = %v, want ok %v", s, err, want.typ)
		}
	}
}
