package work

import (
	"context"
	"encoding/json"

	"chiffon/pkg/message"
)

// A noop does nothing, at once, inside the runner: what it costs is what everything around the work costs.
type noop struct{ params map[string]json.RawMessage }

// Work writes the parameter output, if there is one.
func (n noop) Work(ctx context.Context, _ Attempt, out Sink) Outcome {
	if ctx.Err() != nil {
		return stopped(ctx, Outcome{Resources: &message.ResourcesUsed{}})
	}
	if text, quoted, ok := scalar(n.params["output"]); ok && quoted && text != "" {
		out.Output([]byte(text))
	}
	return Outcome{Status: message.ResultSuccess, Resources: &message.ResourcesUsed{}}
}
