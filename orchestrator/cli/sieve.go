package cli

import "chiffon/orchestrator/client"

// sieve passes on what belongs to a task's story: statuses only of agents that hold it, or held it when they wrote. Anybody
// who may write statuses may write them for any task, so the others are counted, not shown.
type sieve struct {
	teller
	holders map[int]string // by attempt, as the entries "started" that count say
	latest  int            // attempt
	early   []client.Event // statuses of the next attempt whose start has not come yet: the two streams have clocks of their own
	foreign int
}

const maxEarly = 64

func (s *sieve) event(e client.Event) error {
	switch {
	case e.Kind == "status":
		return s.status(e)
	case e.Kind == "started" && e.Void == "":
		return s.started(e)
	case e.Kind == "end":
		s.foreign += len(s.early)
		s.early = nil
	}
	return s.teller.event(e)
}

func (s *sieve) status(e client.Event) error {
	if e.Void == "" && e.Attempt == s.latest+1 && len(s.early) < maxEarly {
		s.early = append(s.early, e)
		return nil
	}
	if e.Attempt == 0 { // it does not say
		e.Attempt = s.latest
	}
	if e.Attempt == 0 || e.AgentID != s.holders[e.Attempt] {
		s.foreign++
		return nil
	}
	return s.teller.event(e)
}

func (s *sieve) started(e client.Event) error {
	if s.holders == nil {
		s.holders = map[int]string{}
	}
	s.holders[e.Attempt], s.latest = e.AgentID, e.Attempt
	if err := s.teller.event(e); err != nil {
		return err
	}
	early := s.early
	s.early = nil
	for _, e := range early {
		if err := s.status(e); err != nil {
			return err
		}
	}
	return nil
}

// tell says once how much was not shown.
func (s *sieve) tell(talk *screen) {
	switch n := s.foreign + len(s.early); n {
	case 0:
	case 1:
		talk.say("1 status by another agent is not shown")
	default:
		talk.say("%d statuses by other agents are not shown", n)
	}
}
