package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pollEvery and pollMost are what the poller of textbooks has.
const (
	pollEvery = 200 * time.Millisecond
	pollMost  = 1000
)

// openPool gives each system as many connections.
func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	c.MaxConns = 40
	return pgxpool.NewWithConfig(ctx, c)
}

type poller struct{ pool *pgxpool.Pool }

func openPoller(ctx context.Context, dsn string) (queue, error) {
	pool, err := openPool(ctx, dsn)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `
		create table job (id bigint generated always as identity primary key, due timestamptz not null, payload bytea not null);
		create index on job (due)`)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &poller{pool}, nil
}

func (p *poller) add(ctx context.Context, jobs []job) error {
	if len(jobs) == 1 {
		_, err := p.pool.Exec(ctx, "insert into job (due, payload) values ($1, $2)", jobs[0].due, jobs[0].payload())
		return err
	}
	_, err := p.pool.CopyFrom(ctx, pgx.Identifier{"job"}, []string{"due", "payload"},
		pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) { return []any{jobs[i].due, jobs[i].payload()}, nil }))
	return err
}

func (p *poller) work(ctx context.Context, ran func(job)) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		n, err := p.poll(context.WithoutCancel(ctx), ran)
		if err != nil {
			return err
		}
		if n == pollMost {
			continue
		}
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	return nil
}

// poll runs what is due, one after the other, in one transaction.
func (p *poller) poll(ctx context.Context, ran func(job)) (int, error) {
	n := 0
	err := pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "select id, payload from job where due <= now() order by due limit $1 for update skip locked", pollMost)
		if err != nil {
			return err
		}
		var ids []int64
		var id int64
		var text []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			ran(jobOf(text))
			ids = append(ids, id)
			return nil
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		n = len(ids)
		_, err = tx.Exec(ctx, "delete from job where id = any($1)", ids)
		return err
	})
	return n, err
}

func (p *poller) close() { p.pool.Close() }
