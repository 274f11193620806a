package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestBackupRefusesWhereNoFileCanBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		file     string
		terminal bool
		says     string
	}{
		"a directory":            {dir, false, dir + " is no file that a backup could replace"},
		"a directory that isn't": {filepath.Join(dir, "no", "b.tar"), false, "no file can be made in " + filepath.Join(dir, "no") + ": no such file or directory"},
		"a terminal":             {"-", true, "orchestrator backup - > FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := play(t, t.Context(), newFake(t), c.terminal, "", "backup", c.file)
			if code != ExitUsage || stdout != "" || !strings.Contains(stderr, c.says) {
				t.Errorf("exit %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}
