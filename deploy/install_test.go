package deploy_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// documented reads the table of docs/install.md: the paths that `make install` makes, folders with a slash at the end.
func documented(t *testing.T) (paths []string) {
	t.Helper()
	for line := range strings.Lines(string(read(t, "../docs/install.md"))) {
		cell := strings.Split(line, "|")
		if len(cell) == 6 && strings.HasPrefix(cell[1], " `/") && strings.TrimSpace(cell[3]) == "install" {
			paths = append(paths, strings.Trim(cell[1], " `"))
		}
	}
	slices.Sort(paths)
	return paths
}

// leaves lists files and empty folders below root the way the table does.
func leaves(t *testing.T, root string) (paths []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !entry.IsDir() {
			paths = append(paths, "/"+path)
			return nil
		}
		inside, err := os.ReadDir(filepath.Join(root, path))
		if err == nil && len(inside) == 0 {
			paths = append(paths, "/"+path+"/")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// stage is a folder to install into and stand-ins for the two programs.
type stage struct{ bin, dest string }

func newStage(t *testing.T) stage {
	t.Helper()
	s := stage{bin: t.TempDir(), dest: t.TempDir()}
	for _, program := range []string{"orchestrator", "agentrunner"} {
		if err := os.WriteFile(filepath.Join(s.bin, program), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// make runs a target of the Makefile on the stage.
func (s stage) make(t *testing.T, target string, more ...string) (string, error) {
	t.Helper()
	args := append([]string{"-s", "-C", "..", target, "BIN=" + s.bin, "DESTDIR=" + s.dest}, more...)
	cmd := exec.CommandContext(t.Context(), "make", args...)
	// This test may itself run below make, whose variables are not meant for the one inside.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") })
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s stage) must(t *testing.T, target string, more ...string) string {
	t.Helper()
	out, err := s.make(t, target, more...)
	if err != nil {
		t.Fatalf("make %s: %v\n%s", target, err, out)
	}
	return out
}

func TestInstallPutsWhatTheTableSays(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.must(t, "install")
	if got, want := leaves(t, s.dest), documented(t); !slices.Equal(got, want) {
		t.Errorf("make install puts\n%s\ndocs/install.md says\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	out := s.must(t, "uninstall")
	for _, path := range leaves(t, s.dest) {
		if !strings.HasSuffix(path, "/") {
			t.Errorf("make uninstall left %s", path)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dest, "etc/chiffon")); err == nil {
		t.Error("make uninstall left an empty /etc/chiffon")
	}
	if !strings.Contains(out, "/var/lib/chiffon") {
		t.Errorf("make uninstall does not say where the state is: %q", out)
	}
}

func TestInstallFollowsPrefix(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.must(t, "install", "PREFIX=/opt/chiffon", "SYSCONFDIR=/opt/etc")
	for program, line := range map[string]string{
		"orchestrator": "ExecStart=/opt/chiffon/bin/orchestrator up",
		"agentrunner":  "ExecStart=/opt/chiffon/bin/agentrunner run",
	} {
		unit := string(read(t, filepath.Join(s.dest, "opt/chiffon/lib/systemd/system/chiffon-"+program+".service")))
		if !strings.Contains(unit, "\n"+line+"\n") || !strings.Contains(unit, "=-/opt/etc/chiffon/"+program+".env\n") {
			t.Errorf("the unit of %s does not follow PREFIX and SYSCONFDIR:\n%s", program, unit)
		}
		if _, err := os.Stat(filepath.Join(s.dest, "opt/chiffon/bin", program)); err != nil {
			t.Error(err)
		}
	}
}

func TestInstallKeepsWhatAnOperatorChanged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.must(t, "install")
	settings := filepath.Join(s.dest, "etc/chiffon/orchestrator.env")
	own := filepath.Join(s.dest, "etc/chiffon/work.d/own.yaml")
	for path, text := range map[string]string{settings: "ORCHESTRATOR_KEEP_TASKS=24h\n", own: "name: own\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"install", "uninstall"} {
		out := s.must(t, target)
		if got := string(read(t, settings)); got != "ORCHESTRATOR_KEEP_TASKS=24h\n" {
			t.Errorf("make %s wrote over the settings: %q", target, got)
		}
		if !strings.Contains(out, "kept   "+settings) {
			t.Errorf("make %s does not say that it kept %s: %q", target, settings, out)
		}
	}
	if _, err := os.Stat(own); err != nil {
		t.Errorf("make uninstall took an operator's work type: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.dest, "etc/chiffon/agentrunner.env")); err == nil {
		t.Error("make uninstall left settings that nobody changed")
	}
}

func TestInstallWantsTheProgramsBuilt(t *testing.T) {
	t.Parallel()
	s := stage{bin: t.TempDir(), dest: t.TempDir()}
	out, err := s.make(t, "install")
	if err == nil || !strings.Contains(out, "make build") {
		t.Errorf("make install without programs: %v, %q; want an error that says make build", err, out)
	}
	if left := leaves(t, s.dest); !slices.Equal(left, []string{"/./"}) {
		t.Errorf("make install without programs left %q", left)
	}
}
