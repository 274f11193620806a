package cli

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"chiffon/orchestrator/client"
	"chiffon/orchestrator/view"
)

// Exit codes of submit --wait, submit --follow and task watch; the first five and the last are those of every command.
// run ends with the code of its command instead. docs/cli.md has the same table.
const (
	ExitOK          = 0   // succeeded
	ExitUsage       = 1   // usage or connection
	ExitCancelled   = 2   // the task was cancelled
	ExitFailed      = 3   // the task failed
	ExitNotAllowed  = 4   // not allowed
	ExitError       = 5   // the task ended with an error, or timed out
	ExitInterrupted = 130 // interrupted; the task goes on
)

// An Exit is how a command line that did not succeed ends.
type Exit struct {
	Code int
	text string
	err  error
}

// Error is the text for the user, fit for a terminal; empty when all has been said.
func (e *Exit) Error() string { return e.text }

// Unwrap is the cause, if there is one.
func (e *Exit) Unwrap() error { return e.err }

// ExitCode is the code that the program is to end with after Run returned err.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*Exit](err); ok {
		return e.Code
	}
	return ExitUsage
}

// ended is the Exit of a follower whose task ended other than well; nil if it succeeded.
func ended(t client.Task) error {
	switch t.State {
	case view.Succeeded:
		return nil
	case view.Cancelled:
		return &Exit{Code: ExitCancelled}
	case view.Failed:
		return &Exit{Code: ExitFailed}
	}
	return &Exit{Code: ExitError}
}

// together is how a command ends that was asked for several things: with the code of last, if that is an Exit, and with
// the words of all.
func together(last error, wrong []error) error {
	e, ok := errors.AsType[*Exit](last)
	if !ok {
		return errors.Join(append(wrong, last)...)
	}
	if len(wrong) > 0 {
		e.text = strings.TrimSpace(errors.Join(wrong...).Error() + "\n" + e.text)
	}
	return e
}

// interrupted tells a follower that what it followed goes on; any other error stays as it is.
func interrupted(err error, id string) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return &Exit{Code: ExitInterrupted, err: err, text: "interrupted; the task goes on\n" +
		"  see it:    orchestrator task watch " + id + "\n" +
		"  cancel it: orchestrator task cancel " + id}
}

// A mistake is a command line that can't be carried out as it stands.
type mistake struct {
	command string // whose --help tells more
	err     error
}

func (m *mistake) Error() string { return m.err.Error() }
func (m *mistake) Unwrap() error { return m.err }

// exit makes an Exit of any error of a command: its code, and what to try next where that is known.
func (p *program) exit(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Exit](err); ok {
		e.text = visibleText(e.text)
		return e
	}
	e := &Exit{Code: ExitUsage, text: err.Error(), err: err}
	if m, ok := errors.AsType[*mistake](err); ok {
		e.text += "\n  see: " + m.command + " --help"
	}
	if _, ok := errors.AsType[*client.Unreachable](err); ok {
		e.text += "\n  start it with \"orchestrator up\", or say where it is with --server or ORCHESTRATOR_URL"
	}
	if n, ok := errors.AsType[*client.NoCredential](err); ok && n.Denied != "" {
		e.Code = ExitNotAllowed
	}
	if r, ok := errors.AsType[*client.Problem](err); ok && (r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden) {
		e.Code = ExitNotAllowed
		e.text += "\n  " + p.found.URL + " refused the credential of " + p.found.TokenFrom
	}
	if errors.Is(err, context.Canceled) {
		e.Code, e.text = ExitInterrupted, "interrupted"
	}
	e.text = visibleText(e.text)
	return e
}
