package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// Nodes that start at one time migrate once, and each can work after; a later call
// changes nothing.
func TestMigrateAtOneTime(t *testing.T) {
	t.Parallel()
	srv := shared.Test(t)
	for i := range 10 {
		s := newStore(srv)
		if i%2 == 1 {
			s.params = "&default_transaction_isolation=serializable"
		}
		var wg sync.WaitGroup
		for i := range 6 {
			e, err := postgres.Connect(t.Context(), s.pool(t), postgres.WithSchema(s.schema))
			require.NoError(t, err)
			defer e.Close()
			wg.Go(func() {
				if err := e.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
				if _, errs := e.Insert(t.Context(), []driver.Record{{ID: strconv.Itoa(i), Born: time.Now()}}); errs[0] != nil {
					t.Error(errs[0])
				}
			})
		}
		wg.Wait()
		var rows, jobs int
		row := s.pool(t).QueryRow(t.Context(), "select (select count(*) from "+s.schema+".format), (select count(*) from "+s.schema+".job)")
		require.NoError(t, row.Scan(&rows, &jobs))
		require.Equal(t, []int{1, 6}, []int{rows, jobs})
	}
}

// The error names a schema of a newer version, one without tables, and another encoding.
func TestWrongDatabase(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	pool := s.pool(t)
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	e, err := postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema))
	require.NoError(t, err)
	defer e.Close()
	_, err = e.Get(t.Context(), "x")
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, errs := e.Insert(t.Context(), []driver.Record{{ID: "x"}})
	require.ErrorContains(t, errs[0], "call Migrate")

	require.NoError(t, e.Migrate(t.Context()))
	exec("update " + s.schema + ".format set version = 1000, oldest = 1000")
	require.ErrorIs(t, e.Migrate(t.Context()), postgres.ErrVersion)
	_, err = postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema))
	require.ErrorIs(t, err, postgres.ErrVersion)
	require.ErrorContains(t, err, "version 1000")

	other := s.schema + "_latin"
	exec("create database " + other + " encoding 'LATIN1' template template0")
	latin, err := pgxpool.New(t.Context(), s.srv.DSN()+"&dbname="+other)
	require.NoError(t, err)
	defer latin.Close()
	_, err = postgres.Connect(t.Context(), latin)
	require.ErrorContains(t, err, "UTF8")
}

// A program works with a schema of a newer version that says that it may, and with no other:
// then its worker ends, and nothing that it is asked for is done.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	s.exec(t, pool, "update SCHEMA.format set version = 1000")
	fresh, err := postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema))
	require.NoError(t, err)
	defer fresh.Close()
	require.NoError(t, fresh.Migrate(t.Context()))
	w, err := fresh.Work(t.Context(), workConfig("w", time.Minute))
	require.NoError(t, err)
	refs := insertAll(t, fresh, record("a", time.Now()))
	held := poll(t, w)
	require.Equal(t, driver.Granted, w.Claim(t.Context(), held)[0].Status)
	require.NoError(t, w.Heartbeat(t.Context()))

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	fed, ran := make(chan error), make(chan error)
	go func() { fed <- w.Fetch(ctx, func([]*driver.Delivery) {}) }()
	q, err := durable.Open(ctx, s.open(t))
	require.NoError(t, err)
	q.Handle("other", func(context.Context, *durable.Attempt) error { return nil })
	go func() { ran <- q.Run(ctx) }()
	s.exec(t, pool, "update SCHEMA.format set oldest = 1000")
	require.ErrorIs(t, <-fed, postgres.ErrVersion)
	require.ErrorIs(t, <-ran, durable.ErrVersion)
	require.NoError(t, q.Close())
	require.ErrorIs(t, w.Heartbeat(ctx), postgres.ErrVersion)
	require.ErrorIs(t, w.Finish(ctx, []driver.Completion{{Delivery: held[0], End: driver.Done}})[0], postgres.ErrVersion)
	_, errs := fresh.Insert(ctx, []driver.Record{record("b", time.Now())})
	require.ErrorIs(t, errs[0], postgres.ErrVersion)
	_, errs = fresh.Cancel(ctx, refs)
	require.ErrorIs(t, errs[0], postgres.ErrVersion)
	_, err = fresh.Get(ctx, refs[0])
	require.ErrorIs(t, err, postgres.ErrVersion)
	_, err = fresh.Work(ctx, workConfig("w2", time.Minute))
	require.ErrorIs(t, err, postgres.ErrVersion)
	_, _, err = fresh.Now(ctx)
	require.ErrorIs(t, err, postgres.ErrVersion)
	require.ErrorIs(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := fresh.AddTx(ctx, tx, durable.Job{Kind: "k"})
		return err
	}), postgres.ErrVersion)
	require.Eventually(t, func() bool { // one that has no worker finds out, too
		_, errs := e.Insert(ctx, []driver.Record{record("c", time.Now())})
		return errors.Is(errs[0], postgres.ErrVersion)
	}, patience, 10*time.Millisecond)
}

// A program that is newer than the schema is told to migrate.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	s.exec(t, pool, "update SCHEMA.format set version = 0")
	_, err := e.Work(t.Context(), workConfig("w", time.Minute))
	require.ErrorContains(t, err, "call Migrate")
	s.exec(t, pool, "alter table SCHEMA.job rename column payload to content")
	_, errs := e.Insert(t.Context(), []driver.Record{record("a", time.Now())})
	require.ErrorContains(t, errs[0], "call Migrate")
}

// A role that may not create schemas migrates one that was made for it.
func TestMigrateWithoutRights(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	pool := s.pool(t)
	for _, sql := range []string{"create role little login", "create schema " + s.schema + " authorization little"} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	little, err := pgxpool.New(t.Context(), s.srv.DSN()+"&user=little")
	require.NoError(t, err)
	defer little.Close()
	e, err := postgres.Connect(t.Context(), little, postgres.WithSchema(s.schema))
	require.NoError(t, err)
	defer e.Close()
	require.NoError(t, e.Migrate(t.Context()))
	_, errs := e.Insert(t.Context(), nil)
	require.Empty(t, errs)
	other, err := postgres.Connect(t.Context(), little, postgres.WithSchema(s.schema+"_other"))
	require.NoError(t, err)
	defer other.Close()
	require.ErrorContains(t, other.Migrate(t.Context()), "permission denied")
}

func TestWrongUse(t *testing.T) {
	for _, name := range []string{"", "Upper", "a-b", "1a", "a.b", "ü", string(make([]byte, 64))} {
		require.PanicsWithValue(t, fmt.Sprintf("postgres: WithSchema(%q): use lower-case letters, digits and _", name), func() {
			postgres.Connect(t.Context(), &pgxpool.Pool{}, postgres.WithSchema(name))
		})
	}
	require.PanicsWithValue(t, "postgres: Connect: nil pool", func() { postgres.Connect(t.Context(), nil) })
	require.PanicsWithValue(t, "postgres: Connect: nil Option", func() {
		postgres.Connect(t.Context(), &pgxpool.Pool{}, nil)
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	_, err = postgres.Connect(ctx, pool)
	require.ErrorContains(t, err, "postgres: Connect")
}
