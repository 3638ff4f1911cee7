package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// failing has commits that change jobs fail when they are told to, as a serialization
// failure does that is found at the commit, when all rows were returned already.
const failing = `
create sequence SCHEMA.armed;
create function SCHEMA.fail() returns trigger language plpgsql as $$
begin
    if (select last_value from SCHEMA.armed) > 1 then
        perform setval('SCHEMA.armed', greatest(1, (select last_value - 1 from SCHEMA.armed))); -- no rollback undoes that
        perform set_config('lock_timeout', '0', true); -- an insert with a key has set it
        perform pg_advisory_xact_lock_shared(1);
        raise exception 'this commit fails' using errcode = '40001';
    end if;
    return null;
end $$;
create constraint trigger fail after insert or update or delete on SCHEMA.job
    deferrable initially deferred for each row execute function SCHEMA.fail();`

// failCommits makes the trigger.
func (s *store) failCommits(t testing.TB, pool *pgxpool.Pool) {
	s.exec(t, pool, failing)
}

// arm has the next n commits fail that change a job.
func (s *store) arm(t testing.TB, pool *pgxpool.Pool, n int) {
	s.exec(t, pool, fmt.Sprintf("select setval('SCHEMA.armed', %d)", 1+n))
}

// exec runs statements, in which SCHEMA is the store's, and returns how many rows the last
// one has changed.
func (s *store) exec(t testing.TB, pool *pgxpool.Pool, sql string) int64 {
	tag, err := pool.Exec(t.Context(), strings.ReplaceAll(sql, "SCHEMA", s.schema), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	return tag.RowsAffected()
}

// awaitLocks waits until so many connections wait for a lock.
func awaitLocks(t testing.TB, pool *pgxpool.Pool, n int) {
	require.Eventually(t, func() bool {
		var blocked int
		err := pool.QueryRow(t.Context(), "select count(*) from pg_stat_activity where wait_event_type = 'Lock'").Scan(&blocked)
		require.NoError(t, err)
		return blocked == n
	}, patience, time.Millisecond)
}

// A call whose first commit fails, and which another one comes before, has not done what
// the first try had said.
func TestFailedCommit(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	s.failCommits(t, pool)
	ctx := t.Context()
	rec := func(id, key string) driver.Record {
		r := record(id, time.Now())
		r.Key = key
		return r
	}
	insert := func(r driver.Record) (driver.Ref, error) {
		refs, errs := e.Insert(ctx, []driver.Record{r})
		return refs[0], errs[0]
	}
	t.Run("Cancel", func(t *testing.T) {
		for i := range 3 {
			ref, err := insert(rec(fmt.Sprint("cancel", i), ""))
			require.NoError(t, err)
			var oks []bool
			var errs []error
			claimed := s.overtaken(t, pool, func() { oks, errs = e.Cancel(ctx, []driver.Ref{ref}) },
				"update SCHEMA.job set state = 1 where id like '%cancel%' and state = 0")
			require.NoError(t, errs[0])
			require.Equal(t, !claimed, oks[0], "claimed before: %v", claimed)
		}
	})
	t.Run("Insert", func(t *testing.T) {
		for i := range 3 {
			key := fmt.Sprint("key", i)
			var ref driver.Ref
			var err error
			taken := s.overtaken(t, pool, func() { ref, err = insert(rec(fmt.Sprint("insert", i), key)) },
				`insert into SCHEMA.job (id, key, given_key, kind, payload, at, due, born, max_attempts, version, attempt, last_error, schedule)
				values ('`+key+`', '`+key+`', '', 'k', '', now(), now() + interval '1 hour', now(), 1, 0, 0, '', '') on conflict do nothing`)
			require.Equal(t, taken, errors.Is(err, driver.ErrExists), "taken before: %v, and %v", taken, err)
			require.Equal(t, taken, ref == "")
		}
	})
	t.Run("Finish", func(t *testing.T) {
		w, err := e.Work(ctx, driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Hour, Ahead: time.Second, Retention: time.Hour})
		require.NoError(t, err)
		for i := range 3 {
			_, err := insert(rec(fmt.Sprint("finish", i), ""))
			require.NoError(t, err)
			held := []*driver.Delivery{byID(t, poll(t, w), fmt.Sprint("finish", i))}
			require.Equal(t, driver.Granted, w.Claim(ctx, held)[0].Status)
			var errs []error
			over := s.overtaken(t, pool, func() { errs = w.Finish(ctx, []driver.Completion{{Delivery: held[0], End: driver.Done}}) },
				fmt.Sprintf("update SCHEMA.job set claim = claim + 1, holder = null where id like '%%finish%d%%' and state = 1", i))
			require.Equal(t, over, errors.Is(errs[0], driver.ErrLeaseLost), "taken over before: %v, and %v", over, errs[0])
		}
	})
}

// overtaken makes a call whose first commit fails, and has a statement wait meanwhile for
// what the call has locked. It returns whether that came before the second try, as it does
// unless the machine is very busy.
func (s *store) overtaken(t testing.TB, pool *pgxpool.Pool, call func(), statement string) bool {
	locker, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer locker.Release()
	_, err = locker.Exec(t.Context(), "select pg_advisory_lock(1)")
	require.NoError(t, err)
	s.arm(t, pool, 1)
	called, other := make(chan bool), make(chan bool)
	go func() { defer close(called); call() }()
	awaitLocks(t, pool, 1)
	go func() { other <- s.exec(t, pool, statement) > 0 }()
	awaitLocks(t, pool, 2)
	_, err = locker.Exec(t.Context(), "select pg_advisory_unlock(1)")
	require.NoError(t, err)
	<-called
	return <-other
}

// poll returns the jobs that one poll of the worker's Fetch finds.
func poll(t testing.TB, w driver.Worker) (held []*driver.Delivery) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, w.Fetch(ctx, func(hs []*driver.Delivery) {
		held = append(held, hs...)
		cancel()
	}))
	return held
}

// Where transactions are serializable by default the same holds.
func TestConformanceSerializable(t *testing.T) {
	t.Parallel()
	srv := server(t)
	enginetest.RunOnly(t, func(testing.TB) enginetest.Store {
		s := newStore(srv)
		s.params = "&default_transaction_isolation=serializable"
		return s
	}, "CancelAgainstClaim", "KeyRace", "TwoWorkers", "Deaths", "Accounts")
}
