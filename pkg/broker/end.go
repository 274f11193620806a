package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
)

// End is the sequence of the last message that a stream holds below a filter (wildcards allowed), 0 when it holds
// none. The last sequence that the stream's own state names may be that of a message which was purged.
func (c *Client) End(ctx context.Context, stream, filter string) (uint64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	query, err := json.Marshal(map[string]string{"last_by_subj": filter})
	if err != nil {
		return 0, err
	}
	m, err := c.nc.RequestWithContext(ctx, "$JS.API.DIRECT.GET."+stream, query)
	if err != nil {
		return 0, fmt.Errorf("end of %s: %w", stream, err)
	}
	switch status := m.Header.Get("Status"); status {
	case "":
	case "404":
		return 0, nil
	default:
		return 0, fmt.Errorf("end of %s: %s %s", stream, status, m.Header.Get("Description"))
	}
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("end of %s: sequence %q", stream, m.Header.Get("Nats-Sequence"))
	}
	return seq, nil
}
