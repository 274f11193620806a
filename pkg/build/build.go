// Package build says what a program was built from. It knows nothing of the program.
package build

import "runtime/debug"

// version is set by the linker: the Makefile gives it what git says, the Dockerfile its VERSION.
var version string

// Version is a tag, a commit or both, as the build had it; what Go stamped where the build said nothing; "(devel)"
// where nobody knows. It is never empty.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
