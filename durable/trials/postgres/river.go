package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverArgs is a job of River's. It has as many bytes as those of the others, in JSON.
type riverArgs struct {
	Payload []byte `json:"p"`
}

func (riverArgs) Kind() string { return "job" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	ran func(job)
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[riverArgs]) error {
	w.ran(jobOf(j.Args.Payload))
	return nil
}

// riverLog keeps River's errors out of the tables.
var riverLog = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

func riverTuned() *river.Config {
	return &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 5 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
	}
}

func riverDefault() *river.Config {
	return &river.Config{Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}}
}

type riverQueue struct {
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
	config func() *river.Config
}

func openRiver(config func() *river.Config) func(context.Context, string) (queue, error) {
	return func(ctx context.Context, dsn string) (queue, error) {
		pool, err := openPool(ctx, dsn)
		if err != nil {
			return nil, err
		}
		q := &riverQueue{pool: pool, config: config}
		m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
		if err == nil {
			_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
		}
		if err == nil {
			q.insert, err = river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: riverLog})
		}
		if err != nil {
			pool.Close()
			return nil, err
		}
		return q, nil
	}
}

// add takes the faster of River's ways: COPY for many.
func (q *riverQueue) add(ctx context.Context, jobs []job) error {
	if len(jobs) == 1 {
		_, err := q.insert.Insert(ctx, riverArgs{jobs[0].payload()}, &river.InsertOpts{ScheduledAt: jobs[0].due})
		return err
	}
	params := make([]river.InsertManyParams, len(jobs))
	for i, j := range jobs {
		params[i] = river.InsertManyParams{Args: riverArgs{j.payload()}, InsertOpts: &river.InsertOpts{ScheduledAt: j.due}}
	}
	_, err := q.insert.InsertManyFast(ctx, params)
	return err
}

func (q *riverQueue) work(ctx context.Context, ran func(job)) error {
	c := q.config()
	c.Logger = riverLog
	c.Workers = river.NewWorkers()
	river.AddWorker(c.Workers, &riverWorker{ran: ran})
	client, err := river.NewClient(riverpgxv5.New(q.pool), c)
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := client.Stop(stop); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (q *riverQueue) close() { q.pool.Close() }
