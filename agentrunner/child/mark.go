package child

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Every process of a run carries a mark in its environment, unless it takes it out: by it a later life of the caller
// finds what was left running where there are no control groups.
const (
	markName       = "CHIFFON_SUPERVISED" // of the program and what it starts: owner/run
	supervisorName = "CHIFFON_SUPERVISOR" // of the supervisor: owner/run, or owner/run/survives
)

const survives = "survives"

// A mark names one run of a Command, for as long as anything of it may be left.
type mark struct{ owner, run string }

func newMark(owner string) (mark, error) {
	for _, c := range owner {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", c) {
			return mark{}, fmt.Errorf("owner %q is to be of letters, digits and - alone", owner)
		}
	}
	return mark{owner, rand.Text()}, nil
}

func (m mark) String() string { return m.owner + "/" + m.run }

// group is the name of the run's control group.
func (m mark) group() string { return groupsOf(m.owner) + m.run }

// groupsOf begins the names of all control groups of an owner. The run behind it has no "-".
func groupsOf(owner string) string {
	if owner == "" {
		return groupPrefix
	}
	return groupPrefix + owner + "-"
}

// supervisor is the environment of a run's supervisor.
func (m mark) supervisor(survive bool) []string {
	text := supervisorName + "=" + m.String()
	if survive {
		text += "/" + survives
	}
	return []string{text, "GOMAXPROCS=2"}
}

// marked is what the environment of a process says about it. The zero value means that it has no mark.
type marked struct {
	mark
	supervisor bool
	survives   bool
}

// readMark reads the environment with which a process was started. That of another user's process cannot be read.
func readMark(pid int) (m marked) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return m
	}
	for kv := range bytes.SplitSeq(text, []byte{0}) {
		name, value, _ := strings.Cut(string(kv), "=")
		if name != markName && name != supervisorName {
			continue
		}
		f := strings.Split(value, "/")
		if len(f) < 2 {
			continue
		}
		m.owner, m.run = f[0], f[1]
		if name == supervisorName {
			m.supervisor, m.survives = true, len(f) > 2 && f[2] == survives
			return m
		}
	}
	return m
}
