//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// store is where an engine keeps jobs.
type store interface {
	open(opts ...durable.Option) (*durable.Queue, error) // as another process would
	cpu() time.Duration                                  // of its server and of this process
	hot() (float64, error)                               // after the last Queue was closed: see figures
	remove()
}

var stores = map[string]func() (store, error){"jetstream": newNATS, "postgres": newPostgres}

// natsStore is a server within this process.
type natsStore struct {
	dir string
	srv *server.Server
}

func newNATS() (store, error) {
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "fleet")
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "fleet", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir, SyncAlways: true,
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

func (s *natsStore) open(opts ...durable.Option) (*durable.Queue, error) {
	nc, err := nats.Connect("", nats.InProcessServer(s.srv), nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	e, err := jetstream.Connect(context.Background(), nc)
	if err != nil {
		return nil, err
	}
	return durable.Open(context.Background(), e, opts...)
}

func (s *natsStore) cpu() time.Duration { return own() }

func (s *natsStore) hot() (float64, error) { return 0, nil }

func (s *natsStore) remove() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	os.RemoveAll(s.dir)
}

// own is the processor time of this process.
func own() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type pgStore struct {
	srv   *pgserver.Server
	pools []*pgxpool.Pool
}

func newPostgres() (store, error) {
	srv, err := pgserver.New("max_connections=100")
	if err != nil {
		return nil, err
	}
	s := &pgStore{srv: srv}
	pool, err := s.pool()
	if err != nil {
		return nil, err
	}
	e, err := postgres.Connect(context.Background(), pool)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	return s, e.Migrate(context.Background())
}

func (s *pgStore) pool() (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(context.Background(), s.srv.DSN()+"&pool_max_conns=16")
	if err == nil {
		s.pools = append(s.pools, pool)
	}
	return pool, err
}

func (s *pgStore) open(opts ...durable.Option) (*durable.Queue, error) {
	pool, err := s.pool()
	if err != nil {
		return nil, err
	}
	e, err := postgres.Connect(context.Background(), pool)
	if err != nil {
		return nil, err
	}
	return durable.Open(context.Background(), e, opts...)
}

// hot ends the connections first: with that the server's processes tell their counts.
func (s *pgStore) hot() (share float64, err error) {
	s.hangUp()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.srv.DSN())
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, `select n_tup_hot_upd::float8 / greatest(n_tup_upd, 1)
		from pg_stat_user_tables where schemaname = 'tickwheel' and relname = 'job'`).Scan(&share)
	return share, err
}

func (s *pgStore) hangUp() {
	for _, p := range s.pools {
		p.Close()
	}
	s.pools = nil
}

func (s *pgStore) remove() {
	s.hangUp()
	if err := s.srv.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// cpu is of the server and of this process.
func (s *pgStore) cpu() time.Duration { return own() + s.srv.CPU() }
