package client

import (
	"context"
	"io"
	"net/http"
)

// Backup writes everything that the server's broker holds to w, as one file. Whether it is whole says the file's
// manifest: read it.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	res, err := c.send(ctx, call{method: http.MethodGet, path: "/v1/backup"}, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return c.broken(ctx, err)
	}
	return nil
}
