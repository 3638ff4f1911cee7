//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/internal/ports"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// nodes measures a cluster of three, with three replicas and every write synced on each.
// All nodes are in this process, on one disk: it is their work that is measured, not a
// network.
func nodes() error {
	for _, callers := range []int{1, 64, 256} {
		err := onNodes(func(q *durable.Queue) error {
			acceptBy(q, callers, "three nodes, accepted a second")
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, rate := range []int{200, 1000} {
		err := onNodes(func(q *durable.Queue) error {
			return life(q, rate, fmt.Sprintf("three nodes, whole life at %5d/s", rate))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// onNodes calls f with a Queue on a new cluster.
func onNodes(f func(q *durable.Queue) error) error {
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	routes, err := ports.Reserve(3)
	if err != nil {
		return err
	}
	defer routes.Release()
	var urls []string
	for i := range routes.Ports {
		srv, err := node(dir, i, routes.Ports)
		if err != nil {
			return err
		}
		defer srv.WaitForShutdown()
		defer srv.Shutdown()
		urls = append(urls, srv.ClientURL())
	}
	q, err := connect(strings.Join(urls, ","))
	if err != nil {
		return err
	}
	defer q.Close()
	return f(q)
}

// node starts the i-th server.
func node(dir string, i int, routes []int) (*server.Server, error) {
	opts := &server.Options{
		ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: filepath.Join(dir, fmt.Sprint(i)), SyncAlways: true,
		JetStreamMaxStore: 16 << 30, JetStreamMaxMemory: 1 << 30,
	}
	opts.Cluster.Name, opts.Cluster.Host, opts.Cluster.Port = "bench", "127.0.0.1", routes[i]
	for k, port := range routes {
		if k != i {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		return nil, errors.New("a node does not start")
	}
	return srv, nil
}

// connect returns a Queue on the cluster, once that has elected its leaders: what it was
// asked before may have no answer.
func connect(urls string) (*durable.Queue, error) {
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	for range 12 {
		var q *durable.Queue
		if q, err = openReplicated(nc); err == nil {
			return q, nil
		}
	}
	return nil, err
}

func openReplicated(nc *nats.Conn) (*durable.Queue, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	e, err := jetstream.Connect(ctx, nc, jetstream.Replicas(3), jetstream.MaxBytes(4<<30))
	if err != nil {
		return nil, err
	}
	return durable.Open(ctx, e, durable.WithConcurrency(1000))
}
