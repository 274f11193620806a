package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"chiffon/pkg/build"
	"chiffon/pkg/message"
)

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
			v := versions{Version: build.Version(), Protocols: message.Versions, Go: runtime.Version()}
			if p.json() {
				return p.out.json(v)
			}
			p.out.say("orchestrator %s, protocol %s, %s", v.Version, message.Version, v.Go)
			return nil
		},
	}
}
