package broker_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"chiffon/pkg/broker"
	"chiffon/pkg/natstest"
)

// Several orchestrators may make the streams of a broker that has little room at once: all succeed.
func TestEnsureByMany(t *testing.T) {
	t.Parallel()
	for range 10 {
		srv, err := server.NewServer(&server.Options{
			JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 4 << 30, Port: -1, Host: "127.0.0.1", MaxPayload: broker.MaxPayload, NoSigs: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		srv.Start()
		t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
		if !srv.ReadyForConnections(20 * time.Second) {
			t.Fatal("no server")
		}
		const many = 4
		errs := make([]error, many)
		var wg sync.WaitGroup
		for i := range many {
			c := natstest.Connect(t, broker.Config{URL: srv.ClientURL(), Name: t.Name(), Log: natstest.Log(t)})
			wg.Go(func() { errs[i] = c.Ensure(t.Context(), broker.DefaultLimits, 1) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			c := natstest.Connect(t, broker.Config{URL: srv.ClientURL(), Name: t.Name(), Log: natstest.Log(t)})
			jsz, _ := srv.Jsz(&server.JSzOptions{Accounts: true, Streams: true, Config: true})
			for _, a := range jsz.AccountDetails {
				t.Logf("reserved %d MiB", jsz.ReservedStore>>20)
				for _, s := range a.Streams {
					t.Logf("%s %d MiB", s.Name, s.Config.MaxBytes>>20)
				}
			}
			t.Fatalf("Ensure = %v; again: %v", err, c.Ensure(t.Context(), broker.DefaultLimits, 1))
		}
	}
}
