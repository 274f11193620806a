// Package subject builds and reads every subject that Chiffon uses on the broker.
// It knows nothing of what travels there: subjects.md is the text of record, and a test holds the two together.
package subject

import (
	"fmt"
	"strings"
)

// A TaskID names one piece of work from submission to result: a UUID in lower case. It stays the same over retries.
type TaskID string

// An AgentID names one registered identity: 1–63 of a–z, 0–9 and "-", beginning with a letter, and none of the
// words "any", "held", "orchestrator" or a priority.
type AgentID string

// An AgentType is the kind of an agent: infra, desktop, code, research or another word of a–z, 0–9, "-" and "_"
// that begins with a letter (1–63 characters). "orchestrator" is the type of the sender, never one to submit to.
type AgentType string

// Orchestrator is the writer's name of every orchestrator, as an agent type and in event subjects.
const Orchestrator = "orchestrator"

// Any and Held are the two targets of a request that are no agent: any agent of the type, and nobody yet.
const (
	Any  = "any"
	Held = "held"
)

// A Priority says which request is handed out first.
type Priority string

// The priorities, first served first.
const (
	Critical Priority = "critical"
	High     Priority = "high"
	Normal   Priority = "normal"
	Low      Priority = "low"
)

// Priorities lists all of them, first served first.
var Priorities = []Priority{Critical, High, Normal, Low}

// ParsePriority reads a priority; "" and "medium" are read as normal.
func ParsePriority(s string) (Priority, error) {
	switch p := Priority(s); p {
	case Critical, High, Normal, Low:
		return p, nil
	case "", "medium":
		return Normal, nil
	}
	return "", fmt.Errorf("priority %q is none of critical, high, normal, low", s)
}

// Streams of Chiffon, by name.
const (
	TasksStream  = "CHIFFON_TASKS"
	StatusStream = "CHIFFON_STATUS"
	MailStream   = "CHIFFON_MAIL"
	AuditStream  = "CHIFFON_AUDIT"
)

// Patterns that the streams and subscriptions are made of.
const (
	AllRequests   = "chiffon.task.*.request.*.*.*"
	AllEvents     = "chiffon.task.*.event.*"
	AllStatuses   = "chiffon.task.*.status.*"
	AllMail       = "chiffon.mail.>"
	AllAudit      = "chiffon.audit.>"
	AllHeartbeats = "chiffon.agent.*.heartbeat"
	AllPokes      = "chiffon.agent.*.poke"
	AllCalls      = "chiffon.api.*.*"
)

// Task is the filter for everything of one task, in whichever stream it is asked.
func Task(id TaskID) string { return "chiffon.task." + lower(id) + ".>" }

// Request is where a work_request for a task stands; target is Any, Held or an agent id.
func Request(id TaskID, t AgentType, target string, p Priority) string {
	return "chiffon.task." + lower(id) + ".request." + string(t) + "." + target + "." + string(p)
}

// Event is where a writer (an agent id or Orchestrator) puts its entries of a task's log.
func Event(id TaskID, writer string) string { return "chiffon.task." + lower(id) + ".event." + writer }

// Status is where an agent puts the work_status messages of a task.
func Status(id TaskID, agent AgentID) string {
	return "chiffon.task." + lower(id) + ".status." + string(agent)
}

// Heartbeat is where an agent registers and shows that it lives; request/reply.
func Heartbeat(agent AgentID) string { return "chiffon.agent." + string(agent) + ".heartbeat" }

// Poke asks an agent for a heartbeat now. It is empty: control is pulled, so a forged poke harms nobody.
func Poke(agent AgentID) string { return "chiffon.agent." + string(agent) + ".poke" }

// Call is where an agent asks the orchestrator for something; request/reply.
func Call(agent AgentID, verb string) string { return "chiffon.api." + string(agent) + "." + verb }

// Mail is where mail for an agent stands.
func Mail(agent AgentID, p Priority) string {
	return "chiffon.mail." + string(agent) + "." + string(p)
}

// Audit is where the record of one kind of event stands.
func Audit(kind string) string { return "chiffon.audit." + kind }

// ForType is the filter of a consumer shared by all agents of a type.
func ForType(t AgentType, p Priority) string {
	return "chiffon.task.*.request." + string(t) + "." + Any + "." + string(p)
}

// ForAgent is the filter of a consumer of one agent.
func ForAgent(agent AgentID, p Priority) string {
	return "chiffon.task.*.request.*." + string(agent) + "." + string(p)
}

// TypeConsumer and AgentConsumer name the durable consumers behind ForType and ForAgent.
func TypeConsumer(t AgentType, p Priority) string { return "type_" + string(t) + "_" + string(p) }

// AgentConsumer names the durable consumer behind ForAgent.
func AgentConsumer(agent AgentID, p Priority) string {
	return "agent_" + string(agent) + "_" + string(p)
}

// A Parsed subject of CHIFFON_TASKS or CHIFFON_STATUS. Requests have Type, Target and Priority and the writer
// Orchestrator; events and statuses have the writer that their subject names.
type Parsed struct {
	Task     TaskID
	Verb     string // "request", "event" or "status"
	Writer   string
	Type     AgentType
	Target   string
	Priority Priority
}

// Parse reads a subject below chiffon.task; ok is false for any other, and for a task id in upper case: nothing here
// writes one, and what answers it would stand on another task's subjects.
func Parse(s string) (p Parsed, ok bool) {
	part := strings.Split(s, ".")
	if len(part) < 5 || part[0] != "chiffon" || part[1] != "task" {
		return Parsed{}, false
	}
	p.Task, p.Verb = TaskID(part[2]), part[3]
	if lower(p.Task) != part[2] {
		return Parsed{}, false
	}
	switch {
	case p.Verb == "request" && len(part) == 7:
		p.Writer, p.Type, p.Target, p.Priority = Orchestrator, AgentType(part[4]), part[5], Priority(part[6])
	case (p.Verb == "event" || p.Verb == "status") && len(part) == 5:
		p.Writer = part[4]
	default:
		return Parsed{}, false
	}
	return p, true
}

// AgentOf reads the agent id out of a heartbeat or call subject, "" when it is neither.
func AgentOf(s string) AgentID {
	part := strings.Split(s, ".")
	if len(part) != 4 || part[0] != "chiffon" || (part[1] != "agent" && part[1] != "api") {
		return ""
	}
	return AgentID(part[2])
}

// VerbOf reads the verb out of a call subject: the last token.
func VerbOf(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }

// Check says what is wrong with an agent id; nil when nothing is.
func (a AgentID) Check() error {
	switch a {
	case Any, Held, Orchestrator, AgentID(Critical), AgentID(High), AgentID(Normal), AgentID(Low):
		return fmt.Errorf("agent id %q is a reserved word", string(a))
	}
	if !word(string(a), "-") {
		return fmt.Errorf("agent id %q must be 1–63 of a–z, 0–9 and -, and begin with a letter", string(a))
	}
	return nil
}

// Check says what is wrong with a type as one to submit to; nil when nothing is.
func (t AgentType) Check() error {
	if t == Orchestrator {
		return fmt.Errorf("agent type %q takes no work", string(t))
	}
	if !word(string(t), "-_") {
		return fmt.Errorf("agent type %q must be 1–63 of a–z, 0–9, - and _, and begin with a letter", string(t))
	}
	return nil
}

func word(s, marks string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune(marks, c) {
			return false
		}
	}
	return true
}

func lower(id TaskID) string { return strings.ToLower(string(id)) }
