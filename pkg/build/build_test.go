package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The flag that sets version, as the Makefile and the Dockerfile have to spell it.
const flag = "-X chiffon/pkg/build.version="

func TestBuildsSetTheVersion(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"../../Makefile", "../../deploy/Dockerfile"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), flag) {
			t.Errorf("%s does not build with %s", file, flag)
		}
	}
	// The flag works: this very test, linked with it, says so.
	bin := filepath.Join(t.TempDir(), "linked")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", bin, "-ldflags", flag+"v1.2.3-4-gabc", ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), bin, "-test.v", "-test.run", "^TestVersion$").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "version v1.2.3-4-gabc\n") {
		t.Errorf("linked with %sv1.2.3-4-gabc: %v\n%s", flag, err, out)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if Version() == "" {
		t.Error("Version() is empty")
	}
	t.Logf("version %s", Version())
}
