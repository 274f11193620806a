package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"chiffon/agentrunner/runner"
	"chiffon/agentrunner/work"
)

// check judges work type files: all that this host would read, or those named. Each mistake stands on a line of its own
// with file, line and cure. The error says that there are mistakes.
func check(files []string, out io.Writer) error {
	var types []*work.Type
	var problems []work.Problem
	if len(files) == 0 {
		cfg, err := runner.FromEnvironment()
		if err != nil {
			return fmt.Errorf("settings:\n%w", err)
		}
		c, wrong := work.Load(cfg.Work())
		types, problems = c.Types(), wrong
	}
	for _, file := range files {
		t, wrong := work.Check(file, os.Environ())
		problems = append(problems, wrong...)
		if len(wrong) == 0 {
			types = append(types, t)
		}
	}
	bad := map[string]bool{}
	for _, p := range problems {
		bad[p.File] = true
		fmt.Fprintln(out, p.Error())
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, t := range types {
		switch {
		case bad[t.File]:
		case t.Reason != "":
			fmt.Fprintf(w, "%s\tnot offered: %s\t%s\n", t.Name, oneLine(t.Reason), t.File)
		default:
			fmt.Fprintf(w, "%s\toffered\t%s\n", t.Name, t.File)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(problems) > 0 {
		return errors.New("there are mistakes in work type files; the others are offered all the same")
	}
	return nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
