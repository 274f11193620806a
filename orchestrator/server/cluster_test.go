package server_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"chiffon/pkg/broker"
	"chiffon/pkg/subject"
)

// freeAddrs are addresses that nobody listens on now.
func freeAddrs(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // all at once, so that no two are alike
		all = append(all, l.Addr().String())
	}
	return all
}

// A cluster is the same cluster after any of its nodes, and all of them, were started anew. What it has really lost is
// told, though not at once.
func TestRemoteIsCluster(t *testing.T) {
	t.Parallel()
	const size = 3
	clients, routes := freeAddrs(t, size), freeAddrs(t, size)
	var peers []*url.URL
	var urls []string
	for i := range size {
		peers = append(peers, &url.URL{Scheme: "nats", Host: routes[i]})
		urls = append(urls, "nats://"+clients[i])
	}
	nodes, dirs := make([]*natsserver.Server, size), [size]string{t.TempDir(), t.TempDir(), t.TempDir()}
	run := func(i int) {
		t.Helper()
		srv, err := natsserver.NewServer(&natsserver.Options{
			ServerName: fmt.Sprint("node", i), Host: "127.0.0.1", Port: port(clients[i]), NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: dirs[i], JetStreamMaxStore: 64 << 30,
			Cluster: natsserver.ClusterOpts{Name: "three", Host: "127.0.0.1", Port: port(routes[i])}, Routes: peers,
		})
		if err != nil {
			t.Fatal(err)
		}
		srv.Start()
		nodes[i] = srv
	}
	end := func(i int) { nodes[i].Shutdown(); nodes[i].WaitForShutdown() }
	for i := range size {
		run(i)
		t.Cleanup(func() { end(i) })
	}
	s := &site{T: t, cfg: here(t)}
	s.cfg.NATSURL, s.cfg.Replicas = strings.Join(urls, ","), size
	leads := func(i int) bool { return nodes[i].JetStreamIsLeader() }
	s.until("the cluster has a leader", func() bool { return leads(0) || leads(1) || leads(2) })
	r := start(t, s.cfg)
	r.ready(http.StatusOK)
	r.do(http.MethodPost, "/v1/tasks", survey)
	s.until("the task is recorded", func() bool { return s.recorded(subject.TasksStream) > 0 })
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}

	for i := range size {
		end(i)
	}
	for i := range size {
		run(i)
	}
	taken := func() bool {
		err := s.open()
		if errors.Is(err, broker.ErrStoreDamaged) {
			t.Fatal(err)
		}
		return err == nil
	}
	s.until("all nodes were started anew, and it is the same cluster", taken)
	for i := range size {
		if leads(i) {
			end(i)
			break
		}
	}
	s.until("its leader was ended, and it is the same cluster", taken)
	s.until("a stream is gone", func() bool {
		err := s.js().DeleteStream(t.Context(), subject.AuditStream)
		return err == nil || errors.Is(err, jetstream.ErrStreamNotFound)
	})
	if err := s.open(); !errors.Is(err, broker.ErrStoreDamaged) || !strings.Contains(err.Error(), "CHIFFON_AUDIT is missing") {
		t.Errorf("Open = %v", err)
	}
}
