// Package runner is the agentrunner as a running thing: its settings and its wiring, read from top to bottom. It does
// no work of its own.
package runner

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"chiffon/agentrunner/work"
	"chiffon/pkg/broker"
	"chiffon/pkg/fault"
	"chiffon/pkg/message"
	"chiffon/pkg/settings"
	"chiffon/pkg/subject"
)

// Config is what an operator sets, by environment variables that begin with AGENTRUNNER_. The zero value of a field
// means its default.
type Config struct {
	ID            subject.AgentID   `envconfig:"ID" desc:"Who this agent is: 1-63 of a-z, 0-9 and -, beginning with a letter; unset means the host name up to its first dot"`
	Type          subject.AgentType `envconfig:"TYPE" default:"infra" desc:"What kind of agent it is: infra, desktop, code, research or another word"`
	State         string            `envconfig:"STATE" desc:"Directory for its journal and for results not delivered yet; one agentrunner at a time uses it"`
	NATSURL       string            `envconfig:"NATS_URL" whole:"true" default:"nats://127.0.0.1:4222" desc:"The broker that the orchestrator uses"`
	Slots         int               `envconfig:"SLOTS" default:"1" desc:"How many tasks run at once"`
	Labels        settings.Pairs    `envconfig:"LABELS" desc:"key=value,... by which tasks may choose it (--on)"`
	Capabilities  []string          `envconfig:"CAPABILITIES" desc:"Words by which tasks may choose it (--needs), separated by commas"`
	WorkDirs      []string          `envconfig:"WORK_DIRS" desc:"Directories of work type files, separated by commas; unset means /etc/chiffon/work.d and $XDG_CONFIG_HOME/chiffon/work.d"`
	AllowCommands []string          `envconfig:"ALLOW_COMMANDS" desc:"Patterns of the commands that run_command may run, separated by commas, as uptime,systemctl status *; unset means that run_command is not offered"`
	Playbooks     string            `envconfig:"PLAYBOOKS" default:"/etc/chiffon/playbooks" desc:"Directory of the playbooks that run_playbook may name"`
	Services      string            `envconfig:"SERVICES" default:"/etc/chiffon/services" desc:"Directory of the compose files that deploy_service may name"`
	Drain         time.Duration     `envconfig:"DRAIN" default:"60s" desc:"How long running tasks may go on after a stop"`
	Heartbeat     time.Duration     `envconfig:"HEARTBEAT" default:"5s" desc:"Time between two heartbeats, at most a third of the lease"`
	LogLevel      slog.Level        `envconfig:"LOG_LEVEL" default:"info" desc:"debug, info, warn or error"`

	// Host is the name of this host. Empty asks the system.
	Host string

	// Reload has the work types read again for each value that comes. Nil means never.
	Reload <-chan os.Signal

	// Now, when it is closed, ends a drain at once: running work gets 2 s. Nil means never.
	Now <-chan struct{}
}

// FromEnvironment reads the settings; the error names every mistake.
func FromEnvironment() (Config, error) {
	var c Config
	err := settings.Read("AGENTRUNNER", &c)
	return c, errors.Join(err, c.complete())
}

// complete fills in what depends on the host, and judges the whole.
func (c *Config) complete() error {
	c.Type = cmp.Or(c.Type, "infra")
	c.NATSURL = cmp.Or(c.NATSURL, "nats://127.0.0.1:4222")
	c.Slots = cmp.Or(c.Slots, 1)
	c.Drain = cmp.Or(c.Drain, time.Minute)
	c.Heartbeat = cmp.Or(c.Heartbeat, 5*time.Second)
	if c.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "localhost"
		}
		c.Host = host
	}
	var mistakes []error
	if c.ID == "" {
		c.ID = idOf(c.Host)
		if c.ID.Check() != nil {
			mistakes = append(mistakes, fmt.Errorf("AGENTRUNNER_ID: the host name %q makes no agent id; set one: 1-63 of a-z, 0-9 and -, beginning with a letter", c.Host))
		}
	} else if err := c.ID.Check(); err != nil {
		mistakes = append(mistakes, fmt.Errorf("AGENTRUNNER_ID: %w", err))
	}
	if err := c.Type.Check(); err != nil {
		mistakes = append(mistakes, fmt.Errorf("AGENTRUNNER_TYPE: %w", err))
	}
	if c.Slots < 0 || c.Slots > 1024 {
		mistakes = append(mistakes, fmt.Errorf("AGENTRUNNER_SLOTS is %d: it is 1 to 1024", c.Slots))
	}
	for name, d := range map[string]time.Duration{"DRAIN": c.Drain, "HEARTBEAT": c.Heartbeat} {
		if d < 0 {
			mistakes = append(mistakes, fmt.Errorf("AGENTRUNNER_%s is %s: it is more than 0", name, d))
		}
	}
	for url := range strings.SplitSeq(c.NATSURL, ",") {
		if err := broker.CheckLoopback(url); err != nil {
			mistakes = append(mistakes, fmt.Errorf("NATS_URL: %w", err))
		}
	}
	mistakes = append(mistakes, c.words()...)
	if len(c.WorkDirs) == 0 {
		c.WorkDirs = []string{"/etc/chiffon/work.d"}
		if dir, err := os.UserConfigDir(); err == nil {
			c.WorkDirs = append(c.WorkDirs, filepath.Join(dir, "chiffon", "work.d"))
		}
	}
	return errors.Join(mistakes...)
}

// words judges labels and capabilities by what a heartbeat may hold.
func (c Config) words() (mistakes []error) {
	hb := message.Heartbeat{AgentID: "a", AgentType: "infra", ProtocolVersions: message.Versions, Labels: c.Labels, Capabilities: c.Capabilities}
	_, err := json.Marshal(hb)
	if flt, ok := errors.AsType[*fault.Fault](err); ok {
		name := "AGENTRUNNER_LABELS"
		if strings.HasPrefix(flt.Field(), "capabilities") {
			name = "AGENTRUNNER_CAPABILITIES"
		}
		mistakes = append(mistakes, fmt.Errorf("%s: %s", name, flt.Message))
	}
	return mistakes
}

// Work says where the work types come from.
func (c Config) Work() work.Config {
	return work.Config{
		Dirs: c.WorkDirs, Env: os.Environ(), AllowCommands: c.AllowCommands, Playbooks: c.Playbooks, Services: c.Services,
	}
}

// idOf makes an agent id of a host name: its first label, with what an id may not have turned into -.
func idOf(host string) subject.AgentID {
	label, _, _ := strings.Cut(strings.ToLower(host), ".")
	label = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, label)
	label = strings.Trim(label, "-")
	if label != "" && label[0] >= '0' && label[0] <= '9' {
		label = "host-" + label
	}
	return subject.AgentID(label[:min(len(label), 63)])
}
