package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"chiffon/pkg/token"
)

// DefaultURL is where an orchestrator listens unless it is told otherwise.
const DefaultURL = "http://127.0.0.1:8422"

// systemState is the state directory of an orchestrator that root runs.
const systemState = "/var/lib/chiffon/orchestrator"

// A Place is all that says where the orchestrator is and which credential it wants. Empty fields were not given.
type Place struct {
	Server    string // --server
	URL       string // ORCHESTRATOR_URL
	TokenFile string // ORCHESTRATOR_TOKEN_FILE
	State     string // ORCHESTRATOR_STATE or STATE_DIRECTORY
	Config    string // the user's configuration directory, without chiffon
	Home      string // XDG_STATE_HOME, without chiffon
	Root      bool   // the caller is root
}

// A Found place: the address, the credential, and where each was read.
type Found struct {
	URL        string
	URLFrom    string
	Credential token.Token
	TokenFrom  string
}

// A NoCredential error means that no file with a credential for the address could be read.
type NoCredential struct {
	URL    string
	Denied string // the file that is there but not for this user; empty when there is none at all
	Cure   string
	Err    error
}

func (e *NoCredential) Error() string {
	if e.Denied != "" {
		return fmt.Sprintf("the credential for %s is in %s, and may not be read by you: %s", e.URL, e.Denied, e.Cure)
	}
	return fmt.Sprintf("no credential for %s: %s", e.URL, e.Cure)
}
func (e *NoCredential) Unwrap() error { return e.Err }

// access is the form of admin.json and client.json.
type access struct {
	URL   string `json:"url"`
	Token string `json:"token"`
}

// Find looks for the server in the order of Place's first two fields, client.json, admin.json in the state directory,
// DefaultURL; and for the credential in TokenFile, then in whichever of the two files is about that server: a token is shown
// to no other. The error is *NoCredential, with the address in Found all the same, or says which file or address is wrong.
func (p Place) Find() (found Found, err error) {
	switch {
	case p.Server != "":
		found.URL, found.URLFrom = p.Server, "--server"
	case p.URL != "":
		found.URL, found.URLFrom = p.URL, "ORCHESTRATOR_URL"
	}
	var denied error
	for _, file := range p.files() {
		a, err := readAccess(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrPermission):
			denied = err
			continue
		case err != nil:
			return found, err
		}
		if found.URL == "" {
			found.URL, found.URLFrom = a.URL, file
		}
		if found.TokenFrom == "" && sameServer(found.URL, a.URL) {
			if found.Credential, err = token.Parse(a.Token); err != nil {
				return found, fmt.Errorf("token in %s: %w", file, err)
			}
			found.TokenFrom = file
		}
	}
	if found.URL == "" {
		found.URL, found.URLFrom = DefaultURL, "default"
	}
	if _, err := parseURL(found.URL); err != nil {
		return found, fmt.Errorf("%s: %w", found.URLFrom, err)
	}
	if p.TokenFile != "" {
		found.Credential, err = token.ReadFile(p.TokenFile)
		found.TokenFrom = p.TokenFile
		if err != nil {
			return found, fmt.Errorf("ORCHESTRATOR_TOKEN_FILE: %w", err)
		}
		return found, nil
	}
	if found.TokenFrom == "" {
		return found, noCredential(found.URL, denied)
	}
	return found, nil
}

// files lists where a credential may be, best first.
func (p Place) files() []string {
	client := filepath.Join(p.Config, "chiffon", "client.json")
	if p.State != "" {
		return []string{client, filepath.Join(p.State, "admin.json")}
	}
	files := []string{client}
	if !p.Root {
		files = append(files, filepath.Join(p.Home, "chiffon", "orchestrator", "admin.json"))
	}
	return append(files, filepath.Join(systemState, "admin.json"))
}

func noCredential(url string, denied error) error {
	if denied != nil {
		e := &NoCredential{URL: url, Err: denied,
			Cure: "run this as the user who runs the orchestrator, or name a token file of your own in ORCHESTRATOR_TOKEN_FILE"}
		if path, ok := errors.AsType[*fs.PathError](denied); ok {
			e.Denied = path.Path
		}
		return e
	}
	return &NoCredential{URL: url,
		Cure: "start an orchestrator here with \"orchestrator up\", or say where its credential is " +
			"in ORCHESTRATOR_STATE (its state directory) or ORCHESTRATOR_TOKEN_FILE"}
}

func readAccess(file string) (a access, err error) {
	f, err := os.Open(file)
	if err != nil {
		return access{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return access{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return access{}, fmt.Errorf("%s holds a credential and others may read it (mode %04o): chmod 600 it", file, info.Mode().Perm())
	}
	if err := json.NewDecoder(f).Decode(&a); err != nil {
		return access{}, fmt.Errorf("read %s: %w", file, err)
	}
	if _, err := parseURL(a.URL); err != nil {
		return access{}, fmt.Errorf("url in %s: %w", file, err)
	}
	return a, nil
}

// sameServer reports whether two addresses mean one server: the same scheme and port, and the same host, all loopback names
// being one.
func sameServer(a, b string) bool {
	ua, errA := url.Parse(a)
	ub, errB := url.Parse(b)
	return errA == nil && errB == nil && ua.Scheme == ub.Scheme && ua.Port() == ub.Port() && host(ua) == host(ub)
}

func host(u *url.URL) string {
	name := u.Hostname()
	if ip := net.ParseIP(name); name == "localhost" || ip != nil && ip.IsLoopback() {
		return "loopback"
	}
	return name
}
