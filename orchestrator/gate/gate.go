// Package gate knows which agents are to get no new work, and why: those that people have paused or drained, and those
// whose breaker is open. It does not know what work there is.
package gate

import "time"

// Why an agent gets no new work.
const (
	Paused   = "paused"   // a person has said so; it ends by itself
	Draining = "draining" // a person has said so, and says when it ends
	Open     = "breaker"  // it has failed too often
)

// A Shut says that an agent is to get no new work. Its zero value says that it may.
type Shut struct {
	Kind  string    // Paused, Draining or Open; "" when it may get work
	Text  string    // for people, to follow the agent's name: "paused until 14:00: new disk"
	Until time.Time // when that ends by itself; zero if it does not
}
