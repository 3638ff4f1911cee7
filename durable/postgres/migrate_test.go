package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// Nodes that start at one time migrate once, and each can work after; a later call
// changes nothing.
func TestMigrateAtOneTime(t *testing.T) {
	srv := server(t)
	for range 5 {
		s := newStore(srv)
		var wg sync.WaitGroup
		for i := range 6 {
			e, err := postgres.Connect(t.Context(), s.pool(t), postgres.Schema(s.schema))
			require.NoError(t, err)
			defer e.Close()
			wg.Go(func() {
				if err := e.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
				if _, errs := e.Insert(t.Context(), []durable.Record{{ID: strconv.Itoa(i), Born: time.Now()}}); errs[0] != nil {
					t.Error(errs[0])
				}
			})
		}
		wg.Wait()
		var rows, jobs int
		row := s.pool(t).QueryRow(t.Context(), "select (select count(*) from "+s.schema+".meta), (select count(*) from "+s.schema+".job)")
		require.NoError(t, row.Scan(&rows, &jobs))
		require.Equal(t, []int{1, 6}, []int{rows, jobs})
	}
}

// A schema of a newer version, one without tables, and another encoding are told by name.
func TestWrongDatabase(t *testing.T) {
	s := newStore(server(t))
	pool := s.pool(t)
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	e, err := postgres.Connect(t.Context(), pool, postgres.Schema(s.schema))
	require.NoError(t, err)
	defer e.Close()
	_, err = e.Get(t.Context(), "x")
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, errs := e.Insert(t.Context(), []durable.Record{{ID: "x"}})
	require.ErrorContains(t, errs[0], "call Migrate")

	require.NoError(t, e.Migrate(t.Context()))
	exec("update " + s.schema + ".meta set version = 1000")
	require.ErrorIs(t, e.Migrate(t.Context()), postgres.ErrVersion)
	_, err = postgres.Connect(t.Context(), pool, postgres.Schema(s.schema))
	require.ErrorIs(t, err, postgres.ErrVersion)
	require.ErrorContains(t, err, "version 1000")

	exec("create database latin encoding 'LATIN1' template template0")
	latin, err := pgxpool.New(t.Context(), s.srv.DSN()+"&dbname=latin")
	require.NoError(t, err)
	defer latin.Close()
	_, err = postgres.Connect(t.Context(), latin)
	require.ErrorContains(t, err, "UTF8")
}

// A role that may not create schemas migrates one that was made for it.
func TestMigrateWithoutRights(t *testing.T) {
	s := newStore(server(t))
	pool := s.pool(t)
	for _, sql := range []string{"create role little login", "create schema " + s.schema + " authorization little"} {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	little, err := pgxpool.New(t.Context(), s.srv.DSN()+"&user=little")
	require.NoError(t, err)
	defer little.Close()
	e, err := postgres.Connect(t.Context(), little, postgres.Schema(s.schema))
	require.NoError(t, err)
	defer e.Close()
	require.NoError(t, e.Migrate(t.Context()))
	_, errs := e.Insert(t.Context(), nil)
	require.Empty(t, errs)
	other, err := postgres.Connect(t.Context(), little, postgres.Schema(s.schema+"_other"))
	require.NoError(t, err)
	defer other.Close()
	require.ErrorContains(t, other.Migrate(t.Context()), "permission denied")
}

func TestWrongUse(t *testing.T) {
	for _, name := range []string{"", "Upper", "a-b", "1a", "a.b", "ü", string(make([]byte, 64))} {
		require.PanicsWithValue(t, fmt.Sprintf("postgres: Schema(%q): not of small letters, digits and _", name), func() {
			postgres.Connect(t.Context(), &pgxpool.Pool{}, postgres.Schema(name))
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
