package work

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"chiffon/agentrunner/child"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/schema"
)

// Prepare judges a request and returns who does it. submitter is who sent it, as its envelope says. The error is a
// *fault.Fault: 5006 for a work type that is not offered, 5003 for parameters that cannot be, 5004 for a submitter
// whom the work type does not take. Nothing has happened yet in either case.
func (c *Catalogue) Prepare(request message.WorkRequest, submitter string) (Worker, error) {
	t, ok := c.types[request.WorkType]
	if !ok || t.Reason != "" {
		flt := fault.Unsupported(request.WorkType, c.offered())
		if ok {
			flt.Message += "; it is known, but " + t.Reason
		}
		return nil, flt
	}
	if len(t.allow) > 0 && !slices.Contains(t.allow, submitter) {
		return nil, fault.New(fault.AuthenticationFailed, "work type %s takes no requests of %q on this host", t.Name, submitter).With("token_status", "not allowed")
	}
	if flt := t.schema.Check(request.Parameters); flt != nil {
		return nil, flt
	}
	var params map[string]json.RawMessage
	if err := json.Unmarshal(request.Parameters, &params); err != nil {
		return nil, fault.Invalid(schema.Parameters, "must be an object")
	}
	if t.noop {
		return noop{params}, nil
	}
	job, flt := c.job(t, params, request)
	if flt != nil {
		return nil, flt
	}
	return job, nil
}

// A job is one request, ready to run.
type job struct {
	t       *Type
	argv    []argument
	listing []argument // the command that counts the steps
	env     []string
	stdin   []byte
	params  json.RawMessage // with the defaults filled in
	maxTime time.Duration   // 0 is no limit
	maxMem  int64
}

func (c *Catalogue) job(t *Type, params map[string]json.RawMessage, request message.WorkRequest) (*job, *fault.Fault) {
	for name, p := range t.properties {
		if _, given := params[name]; !given && p.Default != nil {
			params[name] = p.Default
		}
	}
	whole, err := json.Marshal(params)
	if err != nil {
		return nil, fault.Invalid(schema.Parameters, "%v", err)
	}
	j := &job{t: t, env: c.environment(t), params: whole, maxTime: t.MaxDuration, maxMem: t.maxMemory}
	if h := request.Hints; h != nil {
		j.maxTime = smaller(j.maxTime, time.Duration(h.MaxDurationSeconds)*time.Second)
		j.maxMem = smaller(j.maxMem, int64(h.MaxMemoryMB)<<20)
	}
	switch {
	case t.stdin.parameters:
		j.stdin = whole
	case t.stdin.param != "":
		j.stdin = input(params[t.stdin.param])
	}
	for _, name := range t.inRoot {
		if params[name] == nil {
			continue
		}
		path, flt := t.lookup(name, params[name])
		if flt != nil {
			return nil, flt
		}
		params[name] = path
	}
	var flt *fault.Fault
	if j.argv, flt = t.arguments(t.items, params, whole); flt != nil {
		return nil, flt
	}
	if flt = t.permit(params); flt != nil {
		return nil, flt
	}
	if t.steps != nil && t.steps.command != nil {
		j.listing, flt = t.arguments(t.steps.command, params, whole)
	}
	return j, flt
}

// smaller is the smaller of two limits, of which 0 is none.
func smaller[T int64 | time.Duration](a, b T) T {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// input is a parameter as a program reads it: a text as it is, anything else as JSON.
func input(raw json.RawMessage) []byte {
	if text, quoted, ok := scalar(raw); ok && quoted {
		return []byte(text)
	}
	return raw
}

// permit holds a command that a parameter names against what is allowed.
func (t *Type) permit(params map[string]json.RawMessage) *fault.Fault {
	for _, i := range t.items {
		if i.kind != itemArgv {
			continue
		}
		field := schema.Parameters + "." + i.param
		var argv []string
		if err := json.Unmarshal(params[i.param], &argv); err != nil || len(argv) == 0 || argv[0] == "" {
			return fault.Invalid(field, "must be a list of texts that begins with the program")
		}
		if !permitted(t.programs, argv) {
			return fault.Invalid(field, "%q is not allowed on this host; allowed: %s", strings.Join(argv, " "), strings.Join(t.programs, ", "))
		}
	}
	return nil
}

// lookup finds the file that a parameter names inside the root, and returns its whole path as JSON.
func (t *Type) lookup(param string, raw json.RawMessage) (json.RawMessage, *fault.Fault) {
	field := schema.Parameters + "." + param
	var name string
	if err := json.Unmarshal(raw, &name); err != nil {
		return nil, fault.Invalid(field, "must be a file name")
	}
	root, err := os.OpenRoot(t.root)
	if err != nil {
		return nil, fault.Invalid(field, "directory %s cannot be read on this host: %v", t.root, err)
	}
	defer root.Close()
	switch _, err = root.Stat(name); {
	case err == nil:
		path, err := json.Marshal(filepath.Join(t.root, name))
		if err != nil {
			return nil, fault.Invalid(field, "%v", err)
		}
		return path, nil
	case !filepath.IsLocal(name):
		return nil, fault.Invalid(field, "%q leads out of %s: name a file below it", name, t.root)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.Invalid(field, "%s has no file %q%s", t.root, name, listing(root))
	}
	return nil, fault.Invalid(field, "%q in %s: %v", name, t.root, errors.Unwrap(err))
}

// listing names some of the files that there are.
func listing(root *os.Root) string {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return ""
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	switch {
	case len(names) == 0:
		return "; it is empty"
	case len(names) > 10:
		names = append(names[:10], "…")
	}
	return "; there are " + strings.Join(names, ", ")
}

// files makes what an attempt needs on disk and returns its arguments, with the working directory.
func (j *job) files(dir string) (argv, listing []string, cwd string, err error) {
	cwd = j.t.dir
	if cwd == "" {
		cwd = filepath.Join(dir, "work")
		if err := os.Mkdir(cwd, 0o700); err != nil {
			return nil, nil, "", err
		}
	}
	made := 0
	place := func(list []argument) (argv []string, err error) {
		for _, a := range list {
			text := a.text
			switch {
			case a.script:
				text = filepath.Join(dir, "script")
				err = os.WriteFile(text, []byte(j.t.script), 0o700)
			case a.file != nil:
				made++
				name := filepath.Join(dir, fmt.Sprintf("file-%d.json", made))
				text = a.glue + name
				err = os.WriteFile(name, a.file, 0o600)
			}
			if err != nil {
				return nil, err
			}
			argv = append(argv, text)
		}
		return argv, nil
	}
	if argv, err = place(j.argv); err != nil {
		return nil, nil, "", err
	}
	listing, err = place(j.listing)
	return argv, listing, cwd, err
}

// command is what runs; argv begins with the program.
func (j *job) command(a Attempt, argv []string, cwd string, env []string) child.Command {
	c := child.Command{
		Path: argv[0], Args: argv[1:], Dir: cwd, Env: env, Owner: a.Owner,
		Signal: j.t.signal, Grace: j.t.grace, MaxMemory: j.maxMem,
	}
	if j.maxTime > 0 {
		c.MaxTime = max(j.left(a), time.Millisecond)
	}
	return c
}

// left is how much of the longest time for all attempts together is left; it means nothing without such a limit.
func (j *job) left(a Attempt) time.Duration { return j.maxTime - time.Since(a.Began) }

// signalOr reads a signal's name; fallback when there is none.
func signalOr(name string, fallback syscall.Signal) syscall.Signal {
	if s := signalOf(name); name != "" && s != 0 {
		return s
	}
	return fallback
}
