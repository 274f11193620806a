package work

// Check judges one file. The type has a Reason when it is valid but would not be offered on this host to programs with
// this environment.
func Check(file string, env []string) (*Type, []Problem) {
	t, problems := read(file)
	if len(problems) == 0 && t.Reason == "" {
		t.Reason = (&Catalogue{env: env}).missing(t)
	}
	return t, problems
}
