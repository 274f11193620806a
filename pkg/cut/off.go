//go:build !cut

package cut

// Before stands right before a side effect: what is done, and to what.
func Before(what, to string) {}

// After stands right behind a side effect, whether it succeeded or not.
func After(what, to string) {}
