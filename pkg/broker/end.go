package broker

import "context"

// End is the sequence of the last message that a stream holds below a filter (wildcards allowed), 0 when it holds
// none. The last sequence that the stream's own state names may be that of a message which was purged.
func (c *Client) End(ctx context.Context, stream, filter string) (uint64, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	m, _, err := c.leaderGet(ctx, stream, map[string]any{"last_by_subj": filter})
	return m.Seq, err
}
