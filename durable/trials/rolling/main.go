// Command rolling adds jobs and works until it is told to end. The test of upgrades builds it
// with packages of two versions: so it uses what both have.
//
//	rolling nats://HOST:PORT|postgres://... N LEDGER PAYLOAD
//
// Each job fails once, half a second after it was due, so that the version which runs it stores
// it once more. The command writes its acts into the ledger, as the processes of trials do; Z is
// for a Queue that ended because another has raised the version of the store.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

const (
	lease  = 20 * time.Second
	spread = 4 * time.Second // over which the jobs are due
)

func main() {
	ledger, err := os.Create(os.Args[3])
	if err == nil {
		err = run(os.Args[1], os.Args[2], os.Args[4], func(what rune, ref durable.Ref) {
			fmt.Fprintf(ledger, "%c %s %d\n", what, ref, time.Now().UnixNano())
		})
	}
	if err != nil {
		log.Fatal(err)
	}
}

func run(store, jobs, payload string, write func(rune, durable.Ref)) error {
	n, err := strconv.Atoi(jobs)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	opening, cancel := context.WithTimeout(ctx, 2*time.Minute) // without a deadline an engine asks once
	q, err := open(opening, store)
	cancel()
	if err != nil {
		return err
	}
	defer q.Close()
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
		write('R', a.Ref)
		if a.Number == 1 {
			write('F', a.Ref)
			return durable.RetryAfter(500*time.Millisecond, errors.New("the first attempt"))
		}
		write('D', a.Ref)
		return nil
	})
	for i := range n {
		ref, err := q.Add(ctx, durable.Job{Kind: "k", Payload: []byte(payload), After: spread * time.Duration(i) / time.Duration(n)})
		if err != nil {
			return err
		}
		write('A', ref)
	}
	if err = q.Run(ctx); errors.Is(err, durable.ErrVersion) {
		write('Z', "none")
		<-ctx.Done()
		return nil
	}
	return err
}

// open opens the queue of a store, by its address. It names no type that only today's packages have.
func open(ctx context.Context, store string) (*durable.Queue, error) {
	if strings.HasPrefix(store, "nats:") {
		// By default the server has two seconds to greet, and a busy machine may need more.
		nc, err := nats.Connect(store, nats.MaxReconnects(-1), nats.Timeout(time.Minute))
		if err != nil {
			return nil, err
		}
		e, err := jetstream.Connect(ctx, nc)
		if err != nil {
			return nil, err
		}
		return durable.Open(ctx, e, durable.WithLease(lease))
	}
	pool, err := pgxpool.New(ctx, store)
	if err != nil {
		return nil, err
	}
	e, err := postgres.Connect(ctx, pool)
	if err == nil {
		err = e.Migrate(ctx)
	}
	if err != nil {
		return nil, err
	}
	return durable.Open(ctx, e, durable.WithLease(lease))
}
