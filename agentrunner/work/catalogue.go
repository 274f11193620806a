package work

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"chiffon/agentrunner/child"
	"chiffon/pkg/message"
)

//go:embed builtin/*.yaml
var builtin embed.FS

// A Config says where work types come from. The zero value offers what is built in.
type Config struct {
	// Dirs hold one *.yaml or *.yml file for each work type. A file replaces the built in work type of its name, and
	// one in a later directory that in an earlier one. A directory that is missing is empty.
	Dirs []string

	// Env is the environment of which programs get what is named. Default none of it; PATH is then /usr/bin and its
	// like.
	Env []string

	// AllowCommands are the patterns of what run_command may run, as "uptime", "systemctl status *" or "*" for
	// anything. Default nothing: run_command is not offered.
	AllowCommands []string

	// Playbooks and Services are the directories of the files that run_playbook and deploy_service may name. Default
	// /etc/chiffon/playbooks and /etc/chiffon/services.
	Playbooks, Services string
}

// A Catalogue is the work types of a host, as they were when it was loaded. Safe for concurrent use.
type Catalogue struct {
	types map[string]*Type
	env   []string
}

// Load reads the work types. A file with problems disables its own work type and no other: also the built in one that
// it was to replace.
func Load(cfg Config) (*Catalogue, []Problem) {
	c := &Catalogue{types: map[string]*Type{}, env: cfg.Env}
	problems := c.builtIn(cfg)
	for _, dir := range cfg.Dirs {
		problems = append(problems, c.directory(dir)...)
	}
	offered := 0
	for _, t := range c.Types() {
		if t.Reason == "" {
			t.Reason = c.missing(t)
		}
		if t.Reason == "" {
			if offered++; offered > message.MaxOffers {
				p := Problem{File: t.File, Message: fmt.Sprintf("%d work types are offered before it, and an agent may tell no more", message.MaxOffers), Cure: "move some to another runner"}
				t.Reason, problems = p.Error(), append(problems, p)
			}
		}
	}
	return c, problems
}

func (c *Catalogue) builtIn(cfg Config) (problems []Problem) {
	names, _ := fs.Glob(builtin, "builtin/*.yaml") // the pattern is right
	for _, name := range names {
		data, err := builtin.ReadFile(name)
		if err != nil {
			problems = append(problems, Problem{File: name, Message: err.Error()})
			continue
		}
		t, wrong := parse(name, data)
		problems = append(problems, wrong...)
		t.File = builtinFile
		switch t.Name {
		case "run_playbook":
			t.root = cmp.Or(cfg.Playbooks, t.root)
		case "deploy_service":
			t.root = cmp.Or(cfg.Services, t.root)
		case "run_command":
			t.programs = cfg.AllowCommands
			if len(t.programs) == 0 {
				t.Reason = "no command is allowed: set AGENTRUNNER_ALLOW_COMMANDS"
			}
		}
		c.types[t.Name] = t
	}
	return problems
}

func (c *Catalogue) directory(dir string) (problems []Problem) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, Problem{File: dir, Message: err.Error(), Cure: "let the runner read it"})
		}
		return problems
	}
	here := map[string]string{}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		t, wrong := read(path)
		if other := here[t.Name]; other != "" {
			wrong = append(wrong, Problem{File: path, Message: "work type " + t.Name + " is also in " + other, Cure: "remove one of them"})
		}
		here[t.Name] = path
		if len(wrong) > 0 {
			t.Reason = wrong[0].Error()
		}
		c.types[t.Name] = t
		problems = append(problems, wrong...)
	}
	return problems
}

func read(path string) (*Type, []Problem) {
	info, err := os.Stat(path)
	var data []byte
	if err == nil && info.Size() <= maxFile {
		data, err = os.ReadFile(path)
	}
	switch {
	case err != nil:
		t, _ := parse(path, nil)
		return t, []Problem{{File: path, Message: err.Error(), Cure: "let the runner read it"}}
	case info.Size() > maxFile:
		data = make([]byte, maxFile+1) // parse says so
	}
	return parse(path, data)
}

// missing says what a valid work type lacks on this host; empty when nothing.
func (c *Catalogue) missing(t *Type) string {
	if t.noop {
		return ""
	}
	program := t.items[0].text
	if t.items[0].kind == itemScript {
		program = t.interpreter()[0]
	}
	if program != "" {
		if _, err := child.Look(program, t.dir, c.environment(t)); err != nil {
			return err.Error()
		}
	}
	for _, dir := range []string{t.root, t.dir} {
		if dir == "" {
			continue
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return "directory " + dir + " is missing"
		}
	}
	return ""
}

// Type returns a work type, offered or not.
func (c *Catalogue) Type(name string) (*Type, bool) {
	t, ok := c.types[name]
	return t, ok
}

// Types lists all of them by name, also those that are not offered and why.
func (c *Catalogue) Types() []*Type {
	return slices.SortedFunc(maps.Values(c.types), func(a, b *Type) int { return cmp.Compare(a.Name, b.Name) })
}

// Offers lists what this host can do, by name.
func (c *Catalogue) Offers() []message.Offer {
	offers := []message.Offer{}
	for _, t := range c.Types() {
		if t.Reason == "" {
			offers = append(offers, message.Offer{Name: t.Name, Description: t.Description, Attempts: t.Attempts, Parameters: t.Parameters})
		}
	}
	return offers
}

// Digest changes when the offers do.
func (c *Catalogue) Digest() string {
	text, err := json.Marshal(c.Offers())
	if err != nil {
		panic("work: offers that cannot be encoded: " + err.Error()) // the schemas were compiled
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

func (c *Catalogue) offered() (names []string) {
	for _, o := range c.Offers() {
		names = append(names, o.Name)
	}
	return names
}
