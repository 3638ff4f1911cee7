//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

func init() { stores["jetstream"], connects["jetstream"] = newNATS, connectNATS }

// natsStore is a server within this process, which the workers reach by TCP.
type natsStore struct {
	dir string
	srv *server.Server
}

func newNATS() (store, error) {
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "limits")
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "limits", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir, SyncAlways: true,
	})
	if err != nil {
		return nil, err
	}
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		return nil, errors.New("the server does not start")
	}
	return &natsStore{dir, srv}, nil
}

func (s *natsStore) address() string { return s.srv.ClientURL() }

func (s *natsStore) cpu() time.Duration { return own() }

func (s *natsStore) remove() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	os.RemoveAll(s.dir)
}

func connectNATS(ctx context.Context, address string) (driver.Engine, error) {
	nc, err := nats.Connect(address, nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	return jetstream.Connect(ctx, nc)
}
