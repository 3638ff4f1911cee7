//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// connectPostgres opens an engine on a pool, whose size is in the address, and has so
// many goroutines take connections from it as the environment says.
func connectPostgres(ctx context.Context) (driver.Engine, error) {
	pool, err := pgxpool.New(ctx, os.Getenv(envURL))
	if err != nil {
		return nil, err
	}
	hogs, _ := strconv.Atoi(os.Getenv(envHogs))
	for range hogs {
		go func() {
			for ctx.Err() == nil {
				pool.Exec(ctx, "select pg_sleep(random() * 0.02)")
				time.Sleep(rand.N(20 * time.Millisecond))
			}
		}()
	}
	for { // a server that has just been started
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		e, err := postgres.Connect(try, pool)
		if err == nil {
			err = e.Migrate(try)
		}
		if err == nil {
			err = checkShift(try, e)
		}
		cancel()
		var refusal *pgconn.PgError // rather than that it cannot be reached, or has just been started
		if err == nil || ctx.Err() != nil || errors.As(err, &refusal) && strings.HasPrefix(refusal.Code, "42") {
			return e, err
		}
		fmt.Fprintln(os.Stderr, "connect:", err)
		time.Sleep(200 * time.Millisecond)
	}
}

// checkShift returns an error if the server's clock is not as far from ours as it has to
// be.
func checkShift(ctx context.Context, e driver.Engine) error {
	shift, _ := logIn(os.Getenv(envDir)).shifts()
	now, _, err := e.Now(ctx)
	if off := now.Sub(setclock.Real().Add(shift)); err == nil && off.Abs() > time.Minute {
		return fmt.Errorf("the server's clock is %v from where it should be", off)
	}
	return err
}

func (w *world) startPostgres() (err error) {
	w.pg, err = pgserver.New("deadlock_timeout=300ms", "max_connections=200")
	return err
}

// again calls f with a connection of its own until end, and on until something has happened:
// a slow machine may need longer. It ends when f returns an error.
func (w *world) again(end time.Time, happened func() bool, f func(context.Context, *pgx.Conn) error) error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, w.pg.DSN())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for late := time.Now().Add(patience); time.Now().Before(end) || !happened() && time.Now().Before(late); {
		if err := f(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// provoked counts the lines of the server's log that have a text.
func (w *world) provoked(text string) func() bool {
	return func() bool {
		log, err := os.ReadFile(w.pg.Log())
		w.r.Provoked = strings.Count(string(log), text)
		return err == nil && w.r.Provoked > 0
	}
}

// killPostgres kills all of the server, or one backend, on which the server ends all
// others and recovers.
func (w *world) killPostgres(end time.Time) error {
	if err := w.startAll(); err != nil {
		return err
	}
	for n := 0; n == 0 || time.Now().Before(end); n++ {
		time.Sleep(2*time.Second + rand.N(3*time.Second))
		w.r.Kills++
		if n%3 == 2 {
			if err := w.killBackend(); err != nil {
				return err
			}
			continue
		}
		if err := w.pg.Kill(); err != nil {
			return err
		}
		time.Sleep(rand.N(time.Second))
		if err := w.pg.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) killBackend() error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, w.pg.DSN())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var pid int
	err = c.QueryRow(ctx, `select pid from pg_stat_activity
		where backend_type = 'client backend' and pid <> pg_backend_pid() order by random() limit 1`).Scan(&pid)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// lockDue locks the job that is due next, but not before so many milliseconds.
const lockDue = `select id from tickwheel.job where state = 0 and due > now() + %d * interval '1 ms'
	order by due limit 1 for update skip locked`

// behind waits until a statement of another connection has to wait for this transaction,
// and returns its process. It is nearly always a claim, else a cancel.
func behind(ctx context.Context, tx pgx.Tx) (pid int, err error) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		err = tx.QueryRow(ctx, `select pid from pg_locks
			where not granted and pg_backend_pid() = any(pg_blocking_pids(pid)) limit 1`).Scan(&pid)
		if !errors.Is(err, pgx.ErrNoRows) {
			return pid, err
		}
	}
	return 0, err
}

// terminateBackends ends connections some times a second: in the middle of a claim, which
// stands behind a lock of ours, and wherever else they are at work.
func (w *world) terminateBackends(end time.Time) error {
	if err := w.startAll(); err != nil {
		return err
	}
	time.Sleep(time.Second) // the schema is there
	return w.again(end, func() bool { return w.r.Kills > 0 }, func(ctx context.Context, c *pgx.Conn) error {
		f := terminateClaim
		if rand.N(2) == 0 {
			f = terminateAny
		}
		err := f(ctx, c)
		if errors.Is(err, pgx.ErrNoRows) {
			time.Sleep(time.Millisecond)
			return nil
		}
		w.r.Kills++
		time.Sleep(rand.N(300 * time.Millisecond))
		return err
	})
}

func terminateClaim(ctx context.Context, c *pgx.Conn) error {
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(lockDue, 60)); err != nil {
			return err
		}
		pid, err := behind(ctx, tx)
		if err == nil {
			_, err = tx.Exec(ctx, "select pg_terminate_backend($1)", pid)
		}
		return err
	})
}

func terminateAny(ctx context.Context, c *pgx.Conn) error {
	var done bool
	return c.QueryRow(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
		where backend_type = 'client backend' and pid <> pg_backend_pid() and state <> 'idle'
		order by random() limit 1`).Scan(&done)
}

// exhaustPools gives each process two connections, and twenty others that use them. What
// it counts is how often all of them were taken by those.
func (w *world) exhaustPools(end time.Time) error {
	w.env = []string{envHogs + "=20"}
	w.poolSize = 2
	defer func() { w.env, w.poolSize = nil, 0 }()
	if err := w.startAll(); err != nil {
		return err
	}
	return w.again(end, func() bool { return w.r.Provoked > 0 }, func(ctx context.Context, c *pgx.Conn) error {
		var taken int
		err := c.QueryRow(ctx, `select count(*) from pg_stat_activity
			where state = 'active' and query like 'select pg_sleep%'`).Scan(&taken)
		if taken >= 2*3 {
			w.r.Provoked++
		}
		time.Sleep(20 * time.Millisecond)
		return err
	})
}

// moveClock has a server whose clock is an hour from that of the processes.
func (w *world) moveClock(end time.Time) error {
	shift := time.Hour
	if rand.N(2) == 0 {
		shift = -shift
	}
	if err := w.setClock(shift); err != nil {
		return err
	}
	return w.killWorkers(end)
}

// turnPostgres sets the server's clock while workers and a producer use it.
func (w *world) turnPostgres(end time.Time) error {
	w.r.CheckTwice = false // by a clock that is set forward a lease is over
	w.env = fewFail
	if err := w.setClock(0); err != nil {
		return err
	}
	if err := w.startAll(); err != nil {
		return err
	}
	return w.turns(end)
}

// setPostgresClock puts functions before the server's own that tell the time, so that all
// of the server's statements have a clock that is so much ahead.
func (w *world) setPostgresClock(shift time.Duration) error {
	const functions = `
		create schema if not exists moved;
		create table if not exists moved.clock (ahead interval not null);
		create or replace function moved.now() returns timestamptz stable language sql
			as 'select pg_catalog.now() + ahead from moved.clock';
		create or replace function moved.clock_timestamp() returns timestamptz volatile language sql
			as 'select pg_catalog.clock_timestamp() + ahead from moved.clock';
		alter database postgres set search_path = moved, pg_catalog, public;
		insert into moved.clock select '0' where not exists (select from moved.clock);`
	ctx := context.Background()
	c, err := pgx.Connect(ctx, w.pg.DSN())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	if !w.shifted {
		if _, err := c.Exec(ctx, functions); err != nil {
			return err
		}
		w.shifted = true
	}
	_, err = c.Exec(ctx, "update moved.clock set ahead = $1 * interval '1 second'", shift.Seconds())
	return err
}

// races has many jobs be canceled at the moment when they are claimed.
var races = []string{envRace + "=40"}

// failCommits has the server refuse a fifth of all commits at their end, as those of
// transactions that conflict are. It takes its time for that, so that another statement
// stands behind the locks of the one that fails, and goes first.
func (w *world) failCommits(end time.Time) error {
	w.env = races
	if err := w.startAll(); err != nil {
		return err
	}
	refused := w.provoked(refusal)
	var made bool
	err := w.again(end, refused, func(ctx context.Context, c *pgx.Conn) error {
		if !made {
			_, err := c.Exec(ctx, failing)
			made = err == nil
			return err
		}
		time.Sleep(100 * time.Millisecond)
		return nil
	})
	refused()
	return err
}

const (
	refusal = "this commit is meant to fail"
	failing = `
		create schema failing;
		create function failing.fail() returns trigger language plpgsql as $$ begin
			if txid_current() % 5 = 0 then
				perform pg_sleep(random() * 0.05);
				raise exception '` + refusal + `' using errcode = '40001';
			end if;
			return null;
		end $$;
		create constraint trigger fail after insert or update or delete on tickwheel.job
			deferrable initially deferred for each row execute function failing.fail()`
)

// beSerializable has all transactions be serializable that do not say otherwise, and the
// server end some that conflict.
func (w *world) beSerializable(end time.Time) error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, w.pg.DSN())
	if err == nil {
		_, err = c.Exec(ctx, "alter database postgres set default_transaction_isolation = serializable")
		c.Close(ctx)
	}
	if err != nil {
		return err
	}
	w.env = races
	if err := w.startAll(); err != nil {
		return err
	}
	conflicts := w.provoked("could not serialize access")
	err = w.again(end, conflicts, func(context.Context, *pgx.Conn) error {
		time.Sleep(100 * time.Millisecond)
		return nil
	})
	conflicts()
	return err
}

// lockTable holds a lock on the jobs for a while, as a change of the table does.
func (w *world) lockTable() error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, w.pg.DSN())
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	time.Sleep(rand.N(2 * time.Second))
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "lock table tickwheel.job in share row exclusive mode")
		time.Sleep(1500*time.Millisecond + rand.N(time.Second))
		return err
	})
}

// timeOut has the server give up statements after some milliseconds, for half of the
// time.
func (w *world) timeOut(end time.Time) error {
	if err := w.startAll(); err != nil {
		return err
	}
	set := func(ctx context.Context, c *pgx.Conn, ms int) error {
		_, err := c.Exec(ctx, fmt.Sprintf("alter system set statement_timeout = %d", ms))
		if err == nil {
			_, err = c.Exec(ctx, "select pg_reload_conf()")
		}
		time.Sleep(rand.N(600 * time.Millisecond))
		return err
	}
	timeouts := w.provoked("canceling statement due to statement timeout")
	err := w.again(end, timeouts, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "set statement_timeout = 0"); err != nil { // our own
			return err
		}
		return errors.Join(set(ctx, c, 1+rand.N(5)), set(ctx, c, 0))
	})
	timeouts()
	return err
}

// provokeDeadlocks locks a job that is about to be claimed, waits whether a claim stands
// behind it, and then wants those that the claim has locked. The engine is whom the
// server chooses to fail: it looks for a deadlock after 300 ms, and we after 10 s. A claim
// that passes over what is locked meets none. What it counts is how often jobs were
// locked.
func (w *world) provokeDeadlocks(end time.Time) error {
	if err := w.startAll(); err != nil {
		return err
	}
	time.Sleep(time.Second) // the schema is there
	return w.again(end, func() bool { return w.r.Provoked > 0 }, func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "set deadlock_timeout = '10s'; set lock_timeout = '2s'"); err != nil {
			return err
		}
		err := pgx.BeginFunc(ctx, c, w.lockBackwards)
		var pg *pgconn.PgError
		if errors.Is(err, pgx.ErrNoRows) || errors.As(err, &pg) && pg.Code == lockNotAvailable {
			return nil // nothing was claimed meanwhile
		}
		return err
	})
}

const lockNotAvailable = "55P03"

// lockBackwards first holds up a claim, so that the next one is of many jobs, and then
// has that one wait for the last of its jobs, with all others of it locked.
func (w *world) lockBackwards(tx pgx.Tx) error {
	ctx := context.Background()
	var last string
	if err := tx.QueryRow(ctx, fmt.Sprintf(lockDue, 400)).Scan(&last); err != nil {
		return err
	}
	w.r.Provoked++
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	_, err = inner.Exec(ctx, fmt.Sprintf(lockDue, 60))
	if err == nil {
		_, err = behind(ctx, inner)
	}
	time.Sleep(300 * time.Millisecond)
	if err := errors.Join(err, inner.Rollback(ctx)); err != nil {
		return err
	}
	if _, err := behind(ctx, tx); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `select id from tickwheel.job
		where id < $1 and state = 0 and due < now() + interval '400 ms' order by id desc for update`, last)
	return err
}
