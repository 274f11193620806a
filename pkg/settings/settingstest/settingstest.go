// Package settingstest holds docs/settings.md to what a program reads. It knows no setting.
package settingstest

import (
	"os"
	"strings"
	"testing"

	"chiffon/pkg/settings"
)

// Document fails the test unless the part of a document between <!-- program: begin --> and <!-- program: end --> is
// the table of the settings that a program reads into a struct; with update it writes that part anew.
func Document(t *testing.T, file, program string, into any, update bool) {
	t.Helper()
	begin, end := "<!-- "+program+": begin -->\n", "<!-- "+program+": end -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no part between %q and %q", file, begin, end)
	}
	want := table(strings.ToUpper(program), into)
	switch {
	case old == want:
	case !update:
		t.Fatalf("%s is not what %s reads: go test this package with -update", file, program)
	default:
		if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func table(prefix string, into any) string {
	var b strings.Builder
	b.WriteString("| setting | default | meaning |\n| --- | --- | --- |\n")
	for _, row := range settings.Describe(prefix, into) {
		def := ""
		if row.Default != "" {
			def = "`" + row.Default + "`"
		}
		b.WriteString("| `" + row.Name + "` | " + def + " | " + row.Meaning + " |\n")
	}
	return b.String()
}
