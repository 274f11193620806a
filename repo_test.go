// Package chiffon_test holds the repository to its own documents: layers, package comments, dependencies, settings. It
// knows nothing of what the packages do.
package chiffon_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "chiffon/"

// A source is what one Go file shows of itself: its folder, imports and package comment.
type source struct {
	path, folder string
	test         bool
	imports      []string
	comment      string
	program      bool // package main
	sleeps       bool
	tags         []string // the names in envconfig tags
}

// parse reads one Go file.
func parse(t *testing.T, file string, text any) source {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	s := source{
		path: file, folder: path.Dir(file), test: strings.HasSuffix(file, "_test.go"),
		comment: tree.Doc.Text(), program: tree.Name.Name == "main",
	}
	for _, i := range tree.Imports {
		s.imports = append(s.imports, strings.Trim(i.Path.Value, `"`))
	}
	tag := regexp.MustCompile(`envconfig:"(\w+)"`)
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && n.Sel.Name == "Sleep" {
				s.sleeps = true
			}
		case *ast.Field:
			if n.Tag != nil {
				if found := tag.FindStringSubmatch(n.Tag.Value); found != nil {
					s.tags = append(s.tags, found[1])
				}
			}
		}
		return true
	})
	return s
}

// sources reads every Go file of the repository.
func sources(t *testing.T) (list []source) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err == nil && entry.IsDir() && file != "." && (strings.HasPrefix(name, ".") || name == "testdata") {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(name, ".go") {
			list = append(list, parse(t, file, nil))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// table reads the first cells of a document's table whose header begins with head; marked are those with a †.
func table(t *testing.T, file, head string) (first, marked []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for line := range strings.Lines(string(text)) {
		cell := strings.Split(line, "|")
		switch {
		case len(cell) < 3:
			inside = false
		case strings.TrimSpace(cell[1]) == head:
			inside = true
		case inside && strings.Contains(cell[1], "`"):
			name := strings.Split(cell[1], "`")[1]
			first = append(first, name)
			if strings.Contains(cell[1], "†") {
				marked = append(marked, name)
			}
		}
	}
	if len(first) == 0 {
		t.Fatalf("%s has no table whose first column is %q", file, head)
	}
	return first, marked
}

// upward says what a file imports that its package may not: order is the table of docs/architecture.md, plain the rows
// that keep to the standard library.
func upward(order, plain []string, s source) (wrong []string) {
	program := func(folder string) string { root, _, _ := strings.Cut(folder, "/"); return root }
	for _, i := range s.imports {
		to, ours := strings.CutPrefix(i, module)
		mine := program(s.folder)
		switch {
		case !ours:
			if slices.Contains(plain, s.folder) && !s.test && strings.Contains(strings.Split(i, "/")[0], ".") {
				wrong = append(wrong, i)
			}
		case s.test: // a test may look up, but not across
			if slices.Contains([]string{"pkg", "orchestrator", "agentrunner"}, mine) && program(to) != mine && program(to) != "pkg" {
				wrong = append(wrong, i)
			}
		case to == "pkg/natstest", !slices.Contains(order, to), slices.Index(order, to) >= slices.Index(order, s.folder),
			program(to) != mine && program(to) != "pkg",
			slices.Contains(plain, s.folder) && !slices.Contains(plain, to):
			wrong = append(wrong, i)
		}
	}
	return wrong
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	order, plain := table(t, "docs/architecture.md", "package")
	found := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			found[s.folder] = true
		}
		if wrong := upward(order, plain, s); len(wrong) > 0 {
			t.Errorf("%s: docs/architecture.md does not allow it to import %q", s.path, wrong)
		}
	}
	for folder := range found {
		if !slices.Contains(order, folder) {
			t.Errorf("docs/architecture.md has no row for %s", folder)
		}
	}
	for _, folder := range order {
		if !found[folder] {
			t.Errorf("docs/architecture.md has a row for %s, which is no package", folder)
		}
	}
}

func TestUpwardIsFound(t *testing.T) {
	t.Parallel()
	order := []string{"pkg/fault", "pkg/broker", "pkg/natstest", "orchestrator/view", "orchestrator/api", "agentrunner/work", "agentrunner/intake"}
	for what, c := range map[string]struct {
		file, imports string
		wrong         bool
	}{
		"down":                       {"orchestrator/api/x.go", "chiffon/orchestrator/view", false},
		"up":                         {"orchestrator/view/x.go", "chiffon/orchestrator/api", true},
		"itself":                     {"orchestrator/view/x.go", "chiffon/orchestrator/view", true},
		"to the other program":       {"agentrunner/work/x.go", "chiffon/orchestrator/view", true},
		"to a package without a row": {"orchestrator/api/x.go", "chiffon/pkg/util", true},
		"from the language up":       {"pkg/broker/x.go", "chiffon/orchestrator/view", true},
		"the test broker":            {"orchestrator/api/x.go", "chiffon/pkg/natstest", true},
		"the test broker in a test":  {"orchestrator/api/x_test.go", "chiffon/pkg/natstest", false},
		"a test up":                  {"orchestrator/view/x_test.go", "chiffon/orchestrator/api", false},
		"a test across":              {"agentrunner/work/x_test.go", "chiffon/orchestrator/api", true},
		"a test out of the language": {"pkg/broker/x_test.go", "chiffon/agentrunner/work", true},
		"the end-to-end suite":       {"e2e/x_test.go", "chiffon/agentrunner/work", false},
		"plain to standard":          {"pkg/fault/x.go", "encoding/json", false},
		"plain to foreign":           {"pkg/fault/x.go", "github.com/nats-io/nats.go", true},
		"another to foreign":         {"pkg/broker/x.go", "github.com/nats-io/nats.go", false},
	} {
		s := parse(t, c.file, "package x\nimport _ \""+c.imports+"\"\n")
		if got := upward(order, []string{"pkg/fault"}, s); (len(got) > 0) != c.wrong {
			t.Errorf("%s: upward(%s imports %s) = %q, want wrong %v", what, c.file, c.imports, got, c.wrong)
		}
	}
}

func TestPackagesSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	comments := map[string][]source{}
	for _, s := range sources(t) {
		if !s.test {
			if comments[s.folder] == nil {
				comments[s.folder] = []source{}
			}
			if s.comment != "" {
				comments[s.folder] = append(comments[s.folder], s)
			}
		}
	}
	for folder, list := range comments {
		if len(list) != 1 {
			t.Errorf("%s: %d package comments, want one", folder, len(list))
			continue
		}
		if want := "Package " + path.Base(folder) + " "; !list[0].program && !strings.HasPrefix(list[0].comment, want) {
			t.Errorf("%s: the package comment does not begin with %q", list[0].path, want)
		}
	}
}

// Where only a fake clock moves, sleeping is free; anywhere else a test waits for what happens, not for time.
func TestNoTestSleeps(t *testing.T) {
	t.Parallel()
	sleeping := func(s source) bool { return s.test && s.sleeps && !slices.Contains(s.imports, "testing/synctest") }
	for _, s := range sources(t) {
		if sleeping(s) {
			t.Errorf("%s sleeps outside synctest", s.path)
		}
	}
	if !sleeping(parse(t, "x_test.go", "package x\nimport \"time\"\nfunc f() { time.Sleep(1) }\n")) {
		t.Error("a test that sleeps is not found")
	}
}

func TestDependenciesHaveTheirReasons(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatalf("go mod edit -json: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []struct{ Old struct{ Path string } }
		Tool    []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Replace {
		t.Errorf("go.mod replaces %s", r.Old.Path)
	}
	var direct []string
	for _, r := range mod.Require {
		for _, tool := range mod.Tool {
			r.Indirect = r.Indirect && !strings.HasPrefix(tool.Path+"/", r.Path+"/")
		}
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	rows, _ := table(t, "docs/dependencies.md", "module")
	for _, dep := range direct {
		if !slices.Contains(rows, dep) {
			t.Errorf("docs/dependencies.md has no row for %s", dep)
		}
	}
	for _, row := range rows {
		if !slices.Contains(direct, row) {
			t.Errorf("docs/dependencies.md has a row for %s, which is no direct dependency", row)
		}
	}
}

// What the example settings and compose.yaml name are settings of the program they name.
func TestExampleSettingsExist(t *testing.T) {
	t.Parallel()
	tags := map[string][]string{}
	for _, s := range sources(t) {
		root, _, _ := strings.Cut(s.folder, "/")
		tags[root] = append(tags[root], s.tags...)
	}
	name := regexp.MustCompile(`(?m)^[ #]*(ORCHESTRATOR|AGENTRUNNER)_(\w+)[:=]`)
	for _, file := range []string{"deploy/systemd/orchestrator.env", "deploy/systemd/agentrunner.env", "compose.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := name.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s: no settings found", file)
		}
		for _, f := range found {
			if !slices.Contains(tags[strings.ToLower(f[1])], f[2]) {
				t.Errorf("%s: %s_%s is no setting", file, f[1], f[2])
			}
		}
	}
}
