package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// connectPostgres makes no tables: a queue that is not there is an error.
func (t target) connectPostgres(ctx context.Context) (driver.Engine, func(), error) {
	e, disconnect, err := t.schema(ctx)
	if err != nil { // a nil Engine
		return nil, disconnect, err
	}
	return e, disconnect, nil
}

func (t target) schema(ctx context.Context) (*postgres.Engine, func(), error) {
	var opts []postgres.Option
	if t.queue != "" {
		opts = append(opts, postgres.WithSchema(t.queue))
	}
	pool, err := pgxpool.New(ctx, t.postgres)
	if err != nil {
		return nil, func() {}, err
	}
	e, err := postgres.Connect(ctx, pool, opts...)
	return e, pool.Close, err
}

// migrate brings a schema to the version of this program, or prints the statements that
// would. It makes one only if it is told to.
func (t target) migrate(ctx context.Context, o *output, args []string) error {
	f := newFlags("migrate", o.err)
	show := f.Bool("print", false, "print the statements, and run none")
	create := f.Bool("create", false, "also if the schema has no queue yet")
	if err := parse(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 || t.postgres == "" {
		return wrong("migrate needs -postgres, and takes no arguments")
	}
	connecting, cancel := t.bound(ctx)
	defer cancel()
	e, disconnect, err := t.schema(connecting)
	defer disconnect()
	if err != nil {
		return late(connecting, err)
	}
	defer e.Close()
	version, script, err := e.Migration(ctx)
	switch {
	case err != nil:
		return err
	case version == 0 && !*create:
		return fmt.Errorf("the queue does not exist: migrate -create makes it")
	case script == "":
		fmt.Fprintf(o.err, "the schema has version %d, and needs no migration\n", version)
		return nil
	case *show:
		_, err = fmt.Fprint(o.out, script)
		return err
	}
	return e.Migrate(ctx)
}
