// Worker is a service that runs durable jobs of PostgreSQL. It takes orders by HTTP, answers the probes
// of Kubernetes, and ends as a deployment wants it to.
//
//	DATABASE_URL=postgres://... worker
//	curl -d "a book" localhost:8080/orders
//
// Settings are variables of the environment:
//
//	DATABASE_URL   of PostgreSQL
//	ADDRESS        to listen on, :8080 by default
//	GRACE          how long handlers may go on after SIGTERM, 20s by default
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv); err != nil {
		slog.Error("worker", "error", err)
		os.Exit(1)
	}
}

// run runs jobs until ctx ends and the handlers have returned.
func run(ctx context.Context, env func(string) string) error {
	grace, err := time.ParseDuration(cmp.Or(env("GRACE"), "20s"))
	if err != nil {
		return fmt.Errorf("GRACE: %w", err)
	}
	pool, err := pgxpool.New(ctx, env("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	e, err := postgres.Connect(ctx, pool)
	if err != nil {
		return err
	}
	if err := e.Migrate(ctx); err != nil {
		return err
	}
	q, err := durable.Open(ctx, e, durable.WithGrace(grace))
	if err != nil {
		return err
	}
	defer q.Close()
	durable.HandleJSON(q, "order", func(_ context.Context, a *durable.Attempt, item string) error {
		slog.Info("order", "item", item, "attempt", a.Number)
		return nil
	})
	server := &http.Server{Addr: cmp.Or(env("ADDRESS"), ":8080"), Handler: handler(q), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	defer server.Close() // after Run: so the probes are answered until the last handler has returned
	ran := make(chan error, 1)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ran <- q.Run(running) }()
	select {
	case err := <-served: // such as an address in use
		cancel()
		return errors.Join(err, <-ran)
	case err := <-ran:
		return err
	}
}

func handler(q *durable.Queue) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if err := q.Health(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		item, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 200))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ref, err := durable.AddJSON(r.Context(), q, durable.Job{Kind: "order"}, string(item))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, ref)
	})
	return mux
}
