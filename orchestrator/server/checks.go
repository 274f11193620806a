package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"chiffon/orchestrator/view"
	"chiffon/pkg/broker"
	"chiffon/pkg/build"
	"chiffon/pkg/subject"
)

// streamPatience is how long the streams may take to say how they are, all together.
const streamPatience = 5 * time.Second

// checks is what doctor finds on this side.
func (s *Server) checks(ctx context.Context) []view.Check {
	found := []view.Check{s.checkBroker(), s.checkDurability()}
	asked, done := context.WithTimeout(ctx, streamPatience)
	defer done()
	for _, name := range []string{subject.TasksStream, subject.StatusStream, subject.MailStream, subject.AuditStream} {
		found = append(found, s.checkStream(asked, name))
	}
	return append(found, s.checkViews(), s.checkDisk(), s.checkAgents())
}

func (s *Server) checkBroker() view.Check {
	c := view.Check{Name: "broker", OK: true, Detail: "nats-server " + s.client.ServerVersion() + " at " + s.BrokerURL()}
	switch {
	case !s.client.Connected():
		c.OK, c.Detail, c.Cure = false, "out of reach: "+s.BrokerURL(), "start it, or correct NATS_URL"
	case s.embedded != nil:
		if err := s.embedded.Health(); err != nil {
			c.OK, c.Detail, c.Cure = false, err.Error(), "look at the disk below "+s.state+", and at the log"
		}
	case older(s.client.ServerVersion(), 2, 12):
		c.OK, c.Cure = false, "use NATS 2.12 or newer: older ones have no atomic appends"
	}
	return c
}

func older(version string, major, minor int) bool {
	part := strings.SplitN(version, ".", 3)
	if len(part) < 2 {
		return true
	}
	a, errA := strconv.Atoi(part[0])
	b, errB := strconv.Atoi(part[1])
	return errA != nil || errB != nil || a < major || a == major && b < minor
}

func (s *Server) checkDurability() view.Check {
	c := view.Check{Name: "durability", OK: true}
	switch {
	case s.embedded == nil:
		c.Detail = "the broker's own affair: its sync_interval should be always, or its cluster have three nodes"
	case s.cfg.Durability == "relaxed":
		c.Detail = "relaxed: a power cut may cost the last 100 ms (ORCHESTRATOR_DURABILITY)"
	default:
		c.Detail = "sync: what is acknowledged is on disk"
	}
	return c
}

func (s *Server) checkStream(ctx context.Context, name string) view.Check {
	c := view.Check{Name: "stream " + name, OK: true}
	info, err := s.client.StreamInfo(ctx, name)
	if err != nil {
		c.OK, c.Detail, c.Cure = false, err.Error(), "start the orchestrator anew: it makes what is missing"
		if errors.Is(err, context.DeadlineExceeded) {
			c.Cure = "see to the broker: it does not answer"
		}
		return c
	}
	c.Detail = fmt.Sprintf("%d messages, %d of %d MiB", info.State.Msgs, info.State.Bytes>>20, info.Config.MaxBytes>>20)
	if info.Config.MaxBytes > 0 && info.State.Bytes > uint64(info.Config.MaxBytes)/10*9 && name == subject.TasksStream {
		c.OK, c.Cure = false, "nearly full, nothing new is accepted: shorten ORCHESTRATOR_KEEP_TASKS"
	}
	return c
}

func (s *Server) checkViews() view.Check {
	loading, done, of := s.views.Loading()
	if loading {
		return view.Check{Name: "views", Detail: fmt.Sprintf("folded %d of %d entries", done, of), Cure: "wait a moment"}
	}
	if n, since := s.views.Behind(); n > 0 {
		return view.Check{
			Name: "views", Detail: fmt.Sprintf("%d entries behind, for %s", n, since.Round(time.Second)),
			Cure: "look at the broker and its log; if that is well, start the orchestrator anew",
		}
	}
	return view.Check{Name: "views", OK: true, Detail: fmt.Sprintf("folded up to entry %d", done)}
}

func (s *Server) checkDisk() view.Check {
	c := view.Check{Name: "disk", OK: true}
	room, err := broker.RoomIn(s.state)
	if err != nil {
		c.OK, c.Detail, c.Cure = false, err.Error(), "make "+s.state+" readable"
		return c
	}
	c.Detail = fmt.Sprintf("%d of %d MiB free below %s", room.Free>>20, room.All>>20, s.state)
	switch {
	case s.embedded != nil && room.Short():
		c.OK, c.Cure = false, fmt.Sprintf("make room: nothing new is accepted while less than %d MiB are free", room.Reserve()>>20)
	case room.Free < room.All/10:
		c.OK, c.Cure = false, "make room: the broker stops when the disk is full"
	}
	return c
}

func (s *Server) checkAgents() view.Check {
	c := view.Check{Name: "agents", OK: true}
	live, silent, stopped, other := 0, []string{}, []string{}, []string{}
	for _, a := range s.agents.Agents(time.Now()) {
		switch {
		case a.Stopped():
			stopped = append(stopped, string(a.AgentID))
			continue
		case !a.Live:
			silent = append(silent, string(a.AgentID))
			continue
		}
		live++
		if a.Version != build.Version() {
			other = append(other, fmt.Sprintf("%s has %s", a.AgentID, a.Version))
		}
	}
	c.Detail = fmt.Sprintf("%d live", live)
	if len(stopped) > 0 {
		c.Detail += ", stopped: " + strings.Join(stopped, ", ")
	}
	switch {
	case len(silent) > 0:
		c.OK, c.Detail = false, c.Detail+", silent: "+strings.Join(silent, ", ")
		c.Cure = "start agentrunner there, or look at its log"
	case live == 0 && len(stopped) > 0:
		c.OK, c.Cure = false, "start agentrunner there"
	case live == 0:
		c.OK, c.Detail, c.Cure = false, "none has registered", "start one: agentrunner run"
	case len(other) > 0:
		c.Detail += "; other versions: " + strings.Join(other, ", ")
	}
	if host, err := os.Hostname(); err == nil {
		c.Detail += " (this orchestrator is on " + host + ")"
	}
	return c
}
