package settings

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StateDir is where a program ("orchestrator", "agentrunner") keeps its state: chosen if that is not empty, else
// $STATE_DIRECTORY as systemd gives it, else /var/lib/chiffon/<program> for root, else
// $XDG_STATE_HOME/chiffon/<program>. It is made when missing, for its owner alone.
func StateDir(chosen, program string) (string, error) {
	dir := cmp.Or(chosen, strings.Split(os.Getenv("STATE_DIRECTORY"), ":")[0])
	if dir == "" && os.Geteuid() == 0 {
		dir = filepath.Join("/var/lib/chiffon", program)
	}
	if dir == "" {
		home := os.Getenv("XDG_STATE_HOME")
		if home == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("state directory of %s: %w: set %s_STATE", program, err, strings.ToUpper(program))
			}
			home = filepath.Join(user, ".local", "state")
		}
		dir = filepath.Join(home, "chiffon", program)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("state directory of %s: %w: choose another with %s_STATE", program, err, strings.ToUpper(program))
	}
	return filepath.Abs(dir)
}
