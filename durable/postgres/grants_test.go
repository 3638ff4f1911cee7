package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// as returns the same store for a user, who has logged in.
func (s *store) as(user string) *store {
	other := *s
	other.params = "&user=" + user
	return &other
}

// denied has each statement fail for want of a right.
func (s *store) denied(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := pool.Exec(t.Context(), strings.ReplaceAll(sql, "SCHEMA", s.schema))
		require.ErrorContains(t, err, "SQLSTATE 42501", sql)
	}
}

// grantedStore is a store that a role with the right to migrate has made, and a user for
// each role: adder, laborer, deployer, and one with nothing.
func grantedStore(t *testing.T) *store {
	s := newStore(server(t))
	admin := s.pool(t)
	s.exec(t, admin, postgres.Grants(s.schema))
	for _, sql := range []string{
		"create role adder login in role SCHEMA_add", "create role laborer login in role SCHEMA_work", "create role nobody login",
		"create role deployer login in role SCHEMA_migrate", "alter role deployer set role SCHEMA_migrate",
	} {
		s.exec(t, admin, sql)
	}
	s.as("deployer").open(t)
	s.exec(t, admin, postgres.Grants(s.schema))
	return s
}

// Each role can do its work.
func TestGrants(t *testing.T) {
	t.Parallel()
	s := grantedStore(t)
	ctx := t.Context()
	c := consume(t, s.as("laborer").open(t))

	adds, pool := s.as("adder").open(t), s.as("adder").pool(t)
	q, err := durable.Open(ctx, adds)
	require.NoError(t, err)
	defer q.Close()
	refs, err := q.AddMany(ctx, durable.Job{Kind: "k"}, durable.Job{Kind: "x", Key: "key", After: time.Hour})
	require.NoError(t, err)
	c.began(t, refs[0])
	_, err = q.AddMany(ctx, durable.Job{Kind: "k", Key: "key"})
	require.ErrorIs(t, err, durable.ErrExists)
	c.began(t, s.add(t, adds, pool, durable.Job{Kind: "k"}))
	ref, err := s.addJob(t, pool, durable.Job{Kind: "k"})
	require.NoError(t, err)
	c.began(t, ref)

	// Its sweeps go on from where the last one has come.
	s.exec(t, s.as("laborer").pool(t), "update SCHEMA.format set swept_to = swept_to")

	// What a later migration makes is a worker's at once.
	deploys := s.as("deployer").pool(t)
	s.exec(t, deploys, "create table SCHEMA.later (n int)")
	s.exec(t, s.as("laborer").pool(t), "insert into SCHEMA.later values (1)")

	// For a trigger the function is enough.
	nobody := s.as("nobody").pool(t)
	s.denied(t, nobody, "select SCHEMA.add_job('k')", "select * from SCHEMA.format")
	admin := s.pool(t)
	s.exec(t, admin, "grant usage on schema SCHEMA to nobody")
	s.denied(t, nobody, "select SCHEMA.add_job('k')", "select SCHEMA.ref_of('k')")
	s.exec(t, admin, "grant execute on function SCHEMA.add_job to nobody")
	ref, err = s.addJob(t, nobody, durable.Job{Kind: "k"})
	require.NoError(t, err)
	c.began(t, ref)
	s.denied(t, nobody, "select * from SCHEMA.format", "select id from SCHEMA.job", "insert into SCHEMA.job (id) values ('')")
}

// And no more.
func TestGrantsNoMore(t *testing.T) {
	t.Parallel()
	s := grantedStore(t)
	ddl := []string{
		"drop table SCHEMA.job", "alter table SCHEMA.job add column x int", "truncate SCHEMA.job", "create table SCHEMA.x (n int)",
		"update SCHEMA.format set version = 1", "insert into SCHEMA.format values (1, 1, '')", "delete from SCHEMA.format",
		"create or replace function SCHEMA.base36(number int8) returns text language sql as 'select null'", "create role x",
	}
	s.denied(t, s.as("laborer").pool(t), ddl...)
	s.denied(t, s.as("adder").pool(t), append(ddl,
		"select payload from SCHEMA.job", "select * from SCHEMA.schedule", "select * from SCHEMA.worker", "delete from SCHEMA.job",
		"update SCHEMA.job set due = now()", "update SCHEMA.format set swept_to = ''", "insert into SCHEMA.worker (until, name) values (now(), 'x')",
	)...)
	s.exec(t, s.pool(t), "revoke create on schema public from public") // as it is from version 15 on
	s.denied(t, s.as("deployer").pool(t), "create role x", "create schema x", "create table public.x (n int)")
	adds, err := durable.Open(t.Context(), s.as("adder").open(t))
	require.NoError(t, err)
	defer adds.Close()
	adds.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	require.ErrorContains(t, adds.Run(t.Context()), "permission denied")
	_, err = adds.Cancel(t.Context(), s.add(t, s.open(t), s.pool(t), durable.Job{Kind: "k", After: time.Hour}))
	require.ErrorContains(t, err, "permission denied")
	require.PanicsWithValue(t, `postgres: WithSchema("a b"): use lower-case letters, digits and _`, func() { postgres.Grants("a b") })
}

// With its rights alone a worker does all that an engine owes.
func TestGrantsConformance(t *testing.T) {
	t.Parallel()
	srv := server(t)
	newStore(srv).exec(t, newStore(srv).pool(t), "create role laborer login")
	enginetest.RunOnly(t, func(t testing.TB) enginetest.Store {
		s := newStore(srv)
		s.open(t)
		admin := s.pool(t)
		s.exec(t, admin, postgres.Grants(s.schema))
		s.exec(t, admin, "grant SCHEMA_work to laborer")
		return s.as("laborer")
	}, "Batch", "Keys", "Cancel", "Retries", "Redrive", "Fields", "List", "Retention", "Deaths", "Killer", "LeaseLost", "Unhandled", "ScheduleShared", "ScheduleChanged", "SchedulePaused")
}

// The server cuts off the names of roles: three that are cut off to one would have all rights.
func TestGrantsOfLongNames(t *testing.T) {
	t.Parallel()
	require.Contains(t, postgres.Grants(strings.Repeat("s", 55)), strings.Repeat("s", 55)+"_migrate")
	require.Panics(t, func() { postgres.Grants(strings.Repeat("s", 56)) })
	for _, schema := range []string{"", "A", "a b", "1a", "pg_a", "a\x00", strings.Repeat("s", 64)} {
		require.Panics(t, func() { postgres.WithSchema(schema); postgres.Grants(schema) }, schema)
	}
}
