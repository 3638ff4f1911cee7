package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// orders are rows of a table in the database that keeps the reminders, too.
type orders struct {
	pool   *pgxpool.Pool
	engine *postgres.Engine
}

// openOrders connects to a database, and makes what is not there yet.
func openOrders(ctx context.Context, dsn string) (*orders, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	o := &orders{pool: pool}
	if o.engine, err = postgres.Connect(ctx, pool, postgres.WithSchema("reminders")); err == nil {
		if err = o.engine.Migrate(ctx); err != nil {
			o.engine.Close()
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return o, nil
}

// order stores an order and the reminder to follow it up in one transaction: there are
// both or neither, whatever happens in between.
func (o *orders) order(ctx context.Context, delay, item string, stdout io.Writer) error {
	after, err := time.ParseDuration(delay)
	if err != nil {
		return err
	}
	_, err = o.pool.Exec(ctx, "create table if not exists orders (id bigserial primary key, item text check (item <> ''))")
	if err != nil {
		return err
	}
	var refs []durable.Ref
	err = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) (err error) {
		job := durable.Job{Kind: kind, After: after, Payload: []byte("follow up: " + item)}
		if refs, err = o.engine.AddTx(ctx, tx, job); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "insert into orders (item) values ($1)", item)
		return err
	})
	if err == nil {
		fmt.Fprintln(stdout, refs[0])
	}
	return err
}
