// Schedule has two services, a schedule that is stored, and so is a limit for each tenant.
// The first one stores them and goes; the second has never heard of them, and goes on with the
// schedule within the limit.
//
//	schedule [-dir DIR | -postgres DSN] [-for 3s]
//
// The directory is one process's at a time, so the two take turns. With -postgres there may
// be any number of both at one time: each occurrence runs once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

func main() {
	dir := flag.String("dir", "schedule-data", "where it is kept")
	dsn := flag.String("postgres", "", "a PostgreSQL database that keeps it instead")
	period := flag.Duration("for", 3*time.Second, "how long each service runs")
	flag.Parse()
	if err := run(context.Background(), *dir, *dsn, *period, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "schedule:", err)
		os.Exit(1)
	}
}

// run has one service follow the other.
func run(ctx context.Context, dir, dsn string, period time.Duration, out io.Writer) error {
	for i, name := range []string{"the service that stores it", "one that does not know it"} {
		e, err := open(ctx, dir, dsn)
		if err != nil {
			return err
		}
		q, err := durable.Open(ctx, e)
		if err != nil {
			return err
		}
		q.Handle("report", func(_ context.Context, a *durable.Attempt) error {
			fmt.Fprintf(out, "%s of %s: %s\n", a.Schedule, a.Occurrence.UTC().Format(time.TimeOnly), name)
			return nil
		})
		if i == 0 {
			err = errors.Join(
				q.SetLimit(ctx, "per tenant", durable.Limit{PerLane: true, Running: 1, Rate: 5, Burst: 2}),
				q.SetSchedule(ctx, "report", "@every 1s", durable.Job{Kind: "report", Lane: "tenant 7"}),
			)
		}
		service, stop := context.WithTimeout(ctx, period)
		if err == nil {
			err = q.Run(service)
		}
		stop()
		if err := errors.Join(err, q.Close()); err != nil {
			return err
		}
	}
	return nil
}

func open(ctx context.Context, dir, dsn string) (driver.Engine, error) {
	if dsn == "" {
		return embedded.Open(ctx, dir)
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, pool.Close)
	e, err := postgres.Connect(ctx, pool)
	if err != nil {
		return nil, err
	}
	return e, e.Migrate(ctx)
}
