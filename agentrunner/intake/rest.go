package intake

import (
	"context"
	"fmt"

	"chiffon/agentrunner/child"
	"chiffon/agentrunner/report"
	"chiffon/pkg/message"
	"chiffon/pkg/subject"
)

// restName is the step of what work wrote that went on without its runner: docs/work-types.md says so.
const restName = "after the runner's restart"

// readTries is how often what was reported is read, before the end is told without it.
const readTries = 10

// rest reports what came after the runner of an attempt had died, behind what was reported before.
func (i *Intake) rest(ctx context.Context, s *slot, k child.Survivor, note string) (report.Summary, *report.Reporter) {
	earlier, steps := i.reported(ctx, s)
	earlier.OutputBytes += k.Lost
	earlier.Dropped += k.Lost
	cfg := i.reports(s)
	cfg.WorkType, cfg.Earlier, cfg.Steps = restName, earlier, steps
	r := report.Start(cfg)
	if k.Lost > 0 {
		r.Output(fmt.Appendf(nil, "… %d bytes lost while the runner was away\n", k.Lost))
	}
	r.Output(k.Output)
	if note != "" {
		r.Output([]byte(note + "\n"))
	}
	return r.Close(), r
}

// reports is how an attempt is reported.
func (i *Intake) reports(s *slot) report.Config {
	return report.Config{
		Broker: i.cfg.Broker, Task: s.task, Agent: i.cfg.Agent, Type: i.cfg.Type, Trace: s.record.Trace,
		Request: s.record.Request, Attempt: s.attempt, WorkType: s.workType, Silence: i.cfg.Silence, Log: s.log,
	}
}

// reported reads back what an earlier life has reported of an attempt, and how many steps that were. Nothing, when it
// can't be read.
func (i *Intake) reported(ctx context.Context, s *slot) (sum report.Summary, steps int) {
	for range readTries {
		var err error
		if sum, steps, err = i.readReported(ctx, s); err == nil {
			return sum, steps
		}
		s.log.Warn("what was reported before the restart is not read", "error", err)
		for wait := true; wait; wait = !i.cfg.Broker.Connected() {
			if !sleep(ctx, retryEvery) {
				return report.Summary{}, 0
			}
		}
	}
	return report.Summary{}, 0
}

func (i *Intake) readReported(ctx context.Context, s *slot) (sum report.Summary, steps int, err error) {
	seen := map[message.UUID]bool{} // a status may be stored twice
	for m, err := range i.cfg.Broker.Current(ctx, subject.StatusStream, subject.Status(s.task, i.cfg.Agent), 1) {
		if err != nil {
			return sum, steps, err
		}
		st, err := message.Decode[message.WorkStatus](m.Data)
		if err != nil {
			continue // somebody else's
		}
		x := st.Custom.Chiffon
		if x == nil || x.Attempt != s.attempt || x.Late || seen[st.MessageID] {
			continue
		}
		seen[st.MessageID] = true
		sum.Statuses++
		if st.Payload.Step == nil {
			continue
		}
		steps = max(steps, st.Payload.Step.Number)
		text, err := st.Payload.Step.Bytes()
		if err != nil {
			continue
		}
		sum.OutputBytes += int64(len(text))
		sum.Tail = append(sum.Tail, text...)
		if over := len(sum.Tail) - 2*report.TailSize; over > 0 {
			sum.Tail = sum.Tail[:copy(sum.Tail, sum.Tail[len(sum.Tail)-report.TailSize:])]
		}
	}
	return sum, steps, nil
}
