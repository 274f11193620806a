package chiffon_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every rule of the task log names the tests that hold it, and these are there.
func TestRulesHaveTheirTests(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err := fs.WalkDir(os.DirFS("."), ".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		text, err := os.ReadFile(file)
		for _, found := range test.FindAllStringSubmatch(string(text), -1) {
			known[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("docs/tasklog.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## 9. Which test holds which rule\n")
	if !ok {
		t.Fatal("docs/tasklog.md has no section 9")
	}
	rows := 0
	name := regexp.MustCompile("`(Test\\w+)`")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.HasPrefix(strings.TrimSpace(cells[1]), "---") || strings.TrimSpace(cells[1]) == "rule" {
			continue
		}
		rows++
		found := name.FindAllStringSubmatch(cells[2], -1)
		if len(found) == 0 {
			t.Errorf("rule %q has no test", strings.TrimSpace(cells[1]))
		}
		for _, f := range found {
			if !known[f[1]] {
				t.Errorf("rule %q names %s, which is nowhere", strings.TrimSpace(cells[1]), f[1])
			}
		}
	}
	if rows < 40 {
		t.Errorf("%d rules are listed", rows)
	}
}
