package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

type tickwheel struct {
	pool *pgxpool.Pool
	q    *durable.Queue
}

func openTickwheel(ctx context.Context, dsn string) (queue, error) {
	pool, err := openPool(ctx, dsn)
	if err != nil {
		return nil, err
	}
	e, err := postgres.Connect(ctx, pool)
	if err == nil {
		err = e.Migrate(ctx)
	}
	var q *durable.Queue
	if err == nil {
		q, err = durable.Open(ctx, e, durable.WithConcurrency(1000))
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &tickwheel{pool, q}, nil
}

func (t *tickwheel) add(ctx context.Context, jobs []job) error {
	all := make([]durable.Job, len(jobs))
	for i, j := range jobs {
		all[i] = durable.Job{Kind: "job", At: j.due, Payload: j.payload()}
	}
	_, err := t.q.AddMany(ctx, all...)
	return err
}

func (t *tickwheel) work(ctx context.Context, ran func(job)) error {
	t.q.Handle("job", func(_ context.Context, a *durable.Attempt) error {
		ran(jobOf(a.Job.Payload))
		return nil
	})
	return t.q.Run(ctx)
}

func (t *tickwheel) close() {
	t.q.Close()
	t.pool.Close()
}
