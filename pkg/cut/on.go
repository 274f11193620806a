//go:build cut

package cut

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
)

// Before stands right before a side effect: what is done, and to what.
func Before(what, to string) { step("before " + what + " " + plain(to)) }

// After stands right behind a side effect, whether it succeeded or not.
func After(what, to string) { step("after " + what + " " + plain(to)) }

var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// plain makes one word of all that differ from run to run only.
func plain(to string) string { return uuid.ReplaceAllString(filepath.Base(to), "ID") }

var (
	mu   sync.Mutex
	seen = map[string]int{}
)

// step counts each name for itself: "before append started#2" is the second time.
func step(name string) {
	mu.Lock()
	defer mu.Unlock()
	seen[name]++
	name = fmt.Sprintf("%s#%d", name, seen[name])
	if path := os.Getenv("CHIFFON_CUT_STEPS"); path != "" {
		if f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			fmt.Fprintln(f, name)
			f.Close()
		}
	}
	if os.Getenv("CHIFFON_CUT_AT") == name {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // it takes a moment, in which nothing more may happen here
	}
}
