//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// store is the server of an engine.
type store interface {
	address() string
	cpu() time.Duration // of the server, and of this process
	remove()
}

var stores = map[string]func() (store, error){"postgres": newPostgres}

// connects are what makes an engine of an address.
var connects = map[string]func(ctx context.Context, address string) (driver.Engine, error){"postgres": connectPostgres}

// openQueue opens a queue. With a ledger the claims are written there.
func openQueue(engine, address string, ledger *notes, opts ...durable.Option) (*durable.Queue, error) {
	e, err := connects[engine](context.Background(), address)
	if err != nil {
		return nil, err
	}
	if ledger != nil {
		e = &noting{e, ledger}
	}
	return durable.Open(context.Background(), e, opts...)
}

type pgStore struct{ srv *pgserver.Server }

func newPostgres() (store, error) {
	srv, err := pgserver.New("max_connections=100")
	if err != nil {
		return nil, err
	}
	return pgStore{srv}, nil
}

func (s pgStore) address() string { return s.srv.DSN() + "&pool_max_conns=10" }

func (s pgStore) cpu() time.Duration { return own() + s.srv.CPU() }

func (s pgStore) remove() {
	if err := s.srv.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func connectPostgres(ctx context.Context, address string) (driver.Engine, error) {
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return nil, err
	}
	e, err := postgres.Connect(ctx, pool)
	if err != nil {
		return nil, err
	}
	return e, e.Migrate(ctx)
}

func add(q *durable.Queue, j durable.Job) error { return addAll(q, []durable.Job{j}) }

func addAll(q *durable.Queue, jobs []durable.Job) error {
	_, err := q.AddMany(context.Background(), jobs...)
	return err
}
