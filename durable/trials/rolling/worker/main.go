// Command worker adds jobs and works until its input ends. The tests of upgrades build it with
// today's packages and with those of the last release: so it uses what both have.
//
//	worker nats://HOST:PORT|postgres://... N
//
// A line of its output is "added REF", "ran REF", or at the end "older", if another has raised
// the version of the store.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

const (
	lease  = 3 * time.Second
	spread = 4 * time.Second // over which the jobs are due
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(place, jobs string) error {
	n, err := strconv.Atoi(jobs)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute)
	defer stop()
	q, err := open(ctx, place)
	if err != nil {
		return err
	}
	defer q.Close()
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
		_, err := fmt.Printf("ran %s\n", a.Ref)
		return err
	})
	for i := range n {
		ref, err := q.Add(ctx, durable.Job{Kind: "k", After: spread * time.Duration(i) / time.Duration(n)})
		if err != nil {
			return err
		}
		fmt.Printf("added %s\n", ref)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err = q.Run(ctx); errors.Is(err, durable.ErrVersion) {
		fmt.Println("older")
		return nil
	}
	return err
}

// open opens the queue at a place. It names no type that only today's packages have.
func open(ctx context.Context, place string) (*durable.Queue, error) {
	lease := durable.WithLease(lease)
	if strings.HasPrefix(place, "nats:") {
		nc, err := nats.Connect(place, nats.MaxReconnects(-1))
		if err != nil {
			return nil, err
		}
		e, err := jetstream.Connect(ctx, nc)
		if err != nil {
			return nil, err
		}
		return durable.Open(ctx, e, lease)
	}
	pool, err := pgxpool.New(ctx, place)
	if err != nil {
		return nil, err
	}
	e, err := postgres.Connect(ctx, pool)
	if err != nil {
		return nil, err
	}
	if err := e.Migrate(ctx); err != nil {
		return nil, err
	}
	return durable.Open(ctx, e, lease)
}
