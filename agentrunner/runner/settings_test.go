package runner

import (
	"flag"
	"testing"

	"chiffon/pkg/settings/settingstest"
)

var update = flag.Bool("update", false, "write the runner's part of docs/settings.md anew")

// docs/settings.md shows what is read, and nothing else.
func TestSettingsAreDocumented(t *testing.T) {
	settingstest.Document(t, "../../docs/settings.md", "agentrunner", new(Config), *update)
}
