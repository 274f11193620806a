// Package together runs the parts of a service that live and end together. It does not know what they do.
package together

import (
	"context"
	"errors"
	"sync"
)

// Run runs every part until ctx ends or one of them fails, then ends the others, waits for all of them and returns the
// first failure. A part that returns nil leaves the others running. That ctx was cancelled is no failure; any other
// cause of its end is.
func Run(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, part := range parts {
		wg.Go(func() {
			if err := part(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
