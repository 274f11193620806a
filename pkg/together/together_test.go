package together_test

import (
	"context"
	"errors"
	"testing"

	"chiffon/pkg/together"
)

func TestRun(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	over := errors.New("over")
	ended, endedWhy := context.WithCancelCause(t.Context())
	endedWhy(over)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	waits := func(ctx context.Context) error { <-ctx.Done(); return nil }
	for name, c := range map[string]struct {
		ctx   context.Context
		parts []func(context.Context) error
		want  error
	}{
		"no parts":               {t.Context(), nil, nil},
		"all return":             {t.Context(), []func(context.Context) error{func(context.Context) error { return nil }}, nil},
		"one fails, one waits":   {t.Context(), []func(context.Context) error{waits, func(context.Context) error { return broken }}, broken},
		"cancelled":              {stopped, []func(context.Context) error{waits, waits}, nil},
		"ended with a cause":     {ended, []func(context.Context) error{waits}, over},
		"fails after the end":    {stopped, []func(context.Context) error{waits, func(ctx context.Context) error { <-ctx.Done(); return broken }}, nil},
		"says that it was ended": {stopped, []func(context.Context) error{func(ctx context.Context) error { return ctx.Err() }}, nil},
	} {
		if got := together.Run(c.ctx, c.parts...); !errors.Is(got, c.want) {
			t.Errorf("%s: Run = %v, want %v", name, got, c.want)
		}
	}
}
