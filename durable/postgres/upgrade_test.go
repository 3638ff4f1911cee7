package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// Two made-up versions that could come next. Beside the first, programs of version 1 go on; it
// adds a column. The second gives another name to each table that they write, so that their
// statements fail: see FORMAT.md.
const (
	besideOlder = "alter table tickwheel.job add column extra text; update tickwheel.format set version = 2"
	afterOlder  = `alter table tickwheel.job rename to job_2; alter table tickwheel.worker rename to worker_2;
		alter table tickwheel.schedule rename to schedule_2; alter table tickwheel.flow_control rename to flow_control_2;
		alter table tickwheel.counter rename to counter_2; alter table tickwheel.cancel_request rename to cancel_request_2;
		update tickwheel.format set version = 2, oldest = 2`
)

// nextBuild connects an engine of a build that has one more version of the format.
func nextBuild(t *testing.T, s *store, pool *pgxpool.Pool, next string) *postgres.Engine {
	first, err := os.ReadFile("sql/1.sql")
	require.NoError(t, err)
	e, err := postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema), postgres.Versions(fstest.MapFS{
		"sql/1.sql": {Data: first}, "sql/2.sql": {Data: []byte(next)},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// contents returns all rows of all tables of a schema.
func contents(t *testing.T, s *store, pool *pgxpool.Pool) (rows []string) {
	texts := func(sql string) []string {
		found, err := pool.Query(t.Context(), strings.ReplaceAll(sql, "SCHEMA", s.schema))
		require.NoError(t, err)
		all, err := pgx.CollectRows(found, pgx.RowTo[string])
		require.NoError(t, err)
		require.NotEmpty(t, all, sql)
		return all
	}
	for _, table := range texts("select relname from pg_class where relnamespace = 'SCHEMA'::regnamespace and relkind = 'r' order by 1") {
		rows = append(rows, texts("select '"+table+" ' || to_jsonb(t)::text from SCHEMA."+table+" t order by 1")...)
	}
	return rows
}

// filled returns a queue of which each table has rows, and a claim of a worker.
func filled(t *testing.T, e *postgres.Engine) (*durable.Queue, driver.Worker, *driver.Delivery, []durable.Ref) {
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	refs, err := q.AddMany(t.Context(), durable.Job{Kind: "k"}, durable.Job{Kind: "other", Key: "key", Signals: true, After: time.Hour})
	require.NoError(t, err)
	require.NoError(t, q.SetSchedule(t.Context(), "s", "@every 1h", durable.Job{Kind: "other"}))
	require.NoError(t, q.SetLimit(t.Context(), "l", durable.Limit{Kind: "k", Running: 1}))
	c := workConfig("w", time.Minute)
	c.Kinds = driver.NewKindSet([]string{"k"})
	w, err := e.Work(t.Context(), c)
	require.NoError(t, err)
	held := poll(t, w)
	require.Len(t, held, 1)
	held[0].Exact = true
	require.Equal(t, driver.Granted, w.Claim(t.Context(), held)[0].Status)
	stopped, err := e.CancelRunning(t.Context(), refs[0])
	require.NoError(t, err)
	require.True(t, stopped)
	return q, w, held[0], refs
}

// Once a build has migrated to a version that older programs cannot work with, each call of theirs
// returns ErrVersion, also the first one, and changes nothing.
func TestNextVersionRefusesOlder(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	q, w, d, refs := filled(t, e)
	defer q.Close()
	schedule, err := e.Schedule(t.Context(), "s")
	require.NoError(t, err)
	flow, err := e.FlowControl(t.Context())
	require.NoError(t, err)

	calls := map[string]func(e *postgres.Engine) error{
		"Insert": func(e *postgres.Engine) error {
			_, errs := e.Insert(t.Context(), []driver.Record{record("new", time.Now())})
			return errs[0]
		},
		"Insert with a key": func(e *postgres.Engine) error {
			r := record("keyed", time.Now())
			r.Key = "other"
			_, errs := e.Insert(t.Context(), []driver.Record{r})
			return errs[0]
		},
		"Insert on a key": func(e *postgres.Engine) error {
			r := record("replaces", time.Now())
			r.Key, r.OnKey = "key", driver.KeyReplace
			_, errs := e.Insert(t.Context(), []driver.Record{r})
			return errs[0]
		},
		"AddTx": func(e *postgres.Engine) error {
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			defer tx.Rollback(t.Context())
			_, err = e.AddTx(t.Context(), tx, durable.Job{Kind: "k"})
			return err
		},
		"Signal": func(e *postgres.Engine) error {
			_, err := e.Signal(t.Context(), "key", nil, time.Now())
			return err
		},
		"Cancel": func(e *postgres.Engine) error {
			_, errs := e.Cancel(t.Context(), refs[1:])
			return errs[0]
		},
		"Move": func(e *postgres.Engine) error {
			_, err := e.Move(t.Context(), refs[1], time.Now())
			return err
		},
		"Finish": func(*postgres.Engine) error {
			return w.Finish(t.Context(), []driver.Completion{{Delivery: d, End: driver.Retry, At: time.Now()}})[0]
		},
		"Release": func(*postgres.Engine) error { return w.Release(t.Context(), []*driver.Delivery{d}, 0) },
		"SetSchedule": func(e *postgres.Engine) error {
			return e.SetSchedule(t.Context(), schedule.Revision, driver.Schedule{Name: "s", Revision: 1 << 60}, nil)
		},
		"SetFlowControl": func(e *postgres.Engine) error {
			return e.SetFlowControl(t.Context(), flow.Revision(), driver.NewFlowControl(1<<60, nil, nil))
		},
	}
	before := map[string]*postgres.Engine{} // one for each call, which has not been refused yet
	for name := range calls {
		before[name] = s.open(t)
	}
	require.NoError(t, nextBuild(t, s, pool, afterOlder).Migrate(t.Context()))
	stored := contents(t, s, pool)

	for name, call := range calls {
		require.ErrorIs(t, call(before[name]), durable.ErrVersion, name)
	}
	require.ErrorIs(t, w.Heartbeat(t.Context()), durable.ErrVersion)
	require.ErrorIs(t, w.Close(t.Context()), durable.ErrVersion)
	_, err = e.Work(t.Context(), workConfig("w2", time.Minute))
	require.ErrorIs(t, err, durable.ErrVersion)
	require.ErrorIs(t, e.Migrate(t.Context()), durable.ErrVersion)
	_, err = postgres.Connect(t.Context(), pool, postgres.WithSchema(s.schema))
	require.ErrorIs(t, err, durable.ErrVersion)
	require.Equal(t, stored, contents(t, s, pool))
}

// Beside a version that adds a column, programs of the version before go on, and leave the column as
// it is, whatever they do with the job. Any number of programs may migrate at once.
func TestNextVersionBesideOlder(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	q, w, d, refs := filled(t, e)
	defer q.Close()
	young := nextBuild(t, s, pool, besideOlder)
	_, err := young.Work(t.Context(), workConfig("early", time.Minute))
	require.ErrorContains(t, err, "call Migrate")
	version, script, err := young.Migration(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, version)
	require.Contains(t, script, "add column extra")
	require.NotContains(t, script, "create table")
	var all sync.WaitGroup
	for range 4 {
		for _, e := range []*postgres.Engine{young, e} {
			all.Go(func() {
				if err := e.Migrate(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	version, script, err = young.Migration(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{2, ""}, []any{version, script})

	s.exec(t, pool, "update SCHEMA.job set extra = id")
	require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: d, End: driver.Retry, At: time.Now()}})[0])
	next := poll(t, w)
	require.Len(t, next, 1)
	require.NoError(t, w.Release(t.Context(), next, 0))
	next = poll(t, w)
	next[0].Exact = true
	require.Equal(t, driver.Granted, w.Claim(t.Context(), next)[0].Status)
	require.NoError(t, w.Finish(t.Context(), []driver.Completion{{Delivery: next[0], End: driver.DeadLetter, Error: "x"}})[0])
	require.NoError(t, q.Redrive(t.Context(), refs[0]))
	moved, err := q.Reschedule(t.Context(), refs[1], time.Now())
	require.NoError(t, err)
	require.True(t, moved)
	var changed int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from "+s.schema+".job where extra is distinct from id").Scan(&changed))
	require.Zero(t, changed)

	ran, stop := make(chan string, 10), make(chan func(), 2)
	for i, e := range []*postgres.Engine{s.open(t), young} {
		kind := fmt.Sprint("both", i)
		both, end := runQueue(t, e, func(_ context.Context, a *durable.Attempt) error { ran <- string(a.Job.Payload); return nil })
		stop <- end
		_, err := both.Add(t.Context(), durable.Job{Kind: "k", Payload: []byte(kind)})
		require.NoError(t, err)
	}
	seen := map[string]bool{}
	for !seen["both0"] || !seen["both1"] {
		seen[await(t, ran)] = true
	}
	(<-stop)()
	(<-stop)()
}
