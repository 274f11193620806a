package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"chiffon/pkg/message"
)

// Version is what this program was built from: a tag, or the commit and its time.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

type versions struct {
	Version   string   `json:"version"`
	Protocols []string `json:"protocol_versions"`
	Go        string   `json:"go"`
}

func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  orchestrator version -o json",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := versions{Version: Version(), Protocols: message.Versions, Go: runtime.Version()}
			if p.json() {
				return p.out.json(v)
			}
			p.out.say("orchestrator %s, protocol %s, %s", v.Version, message.Version, v.Go)
			return nil
		},
	}
}
