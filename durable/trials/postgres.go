//go:build unix

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickwheel/tickwheel/durable/trials/setclock"
)

// sql calls f with a connection to the server of its own.
func (w *world) sql(f func(c *pgx.Conn)) {
	c := get(pgx.Connect(background, w.pg.DSN()))
	defer c.Close(background)
	f(c)
}

// untilHappened starts all and changes the server. Then it calls f with a connection until the end of the fault, and on until
// something has happened that is counted as Happened: a slow machine may need longer. The lines of
// the server's log with a text count as Happened, if there is one.
func untilHappened(w *world, text, change string, f func(c *pgx.Conn)) {
	happened := func() bool {
		if text != "" {
			w.r.Happened = strings.Count(string(get(os.ReadFile(w.pg.Log()))), text)
		}
		return w.r.Happened > 0
	}
	w.startAll()
	time.Sleep(time.Second) // the schema is there
	w.sql(func(c *pgx.Conn) {
		get(c.Exec(background, change))
		for late := time.Now().Add(patience); time.Now().Before(w.end) || !happened() && time.Now().Before(late); {
			f(c)
		}
	})
	happened()
}

// signalBackend sends a signal to a process of the server that works, if there is one, or to another that has a client.
func signalBackend(c *pgx.Conn, what syscall.Signal) error {
	var pid int
	err := c.QueryRow(background, `select pid from pg_stat_activity where backend_type = 'client backend'
		and pid <> pg_backend_pid() order by state = 'idle', random() limit 1`).Scan(&pid)
	if err == nil {
		err = kill(pid, what)
	}
	return err
}

// kill sends a signal, or returns pgx.ErrNoRows if the process has just ended.
func kill(pid int, what syscall.Signal) error {
	err := syscall.Kill(pid, what)
	if errors.Is(err, syscall.ESRCH) {
		return pgx.ErrNoRows
	}
	return err
}

// lockDue locks the job that is due next, but not before so many milliseconds.
const lockDue = `select id from tickwheel.job where state = 0 and due > now() + %d * interval '1 ms'
	order by due limit 1 for update skip locked`

// behind waits until a statement of another connection has to wait for this transaction,
// and returns its process. It is nearly always a claim, else a cancel.
func behind(tx pgx.Tx) (pid int, err error) {
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		err = tx.QueryRow(background, `select pid from pg_locks
			where not granted and pg_backend_pid() = any(pg_blocking_pids(pid)) limit 1`).Scan(&pid)
		if !errors.Is(err, pgx.ErrNoRows) {
			return pid, err
		}
	}
	return 0, err
}

// terminateBackends ends connections some times a second, as pg_terminate_backend does: in the middle of a claim,
// which stands behind a lock of ours, and wherever else they are at work.
func terminateBackends(w *world) {
	untilHappened(w, "", "", func(c *pgx.Conn) {
		err := pgx.BeginFunc(background, c, func(tx pgx.Tx) error {
			if rand.N(2) == 0 {
				return signalBackend(c, syscall.SIGTERM)
			}
			if _, err := tx.Exec(background, fmt.Sprintf(lockDue, 60)); err != nil {
				return err
			}
			pid, err := behind(tx)
			if err == nil {
				err = kill(pid, syscall.SIGTERM)
			}
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			time.Sleep(time.Millisecond)
			return
		}
		must(err)
		w.r.Happened++
		pause(0, 300*time.Millisecond)
	})
}

// exhaustPools gives each process two connections, and twenty others that use them. What
// it counts is how often all of them were taken by those.
func exhaustPools(w *world) {
	w.spec.Pool = 2
	untilHappened(w, "", "", func(c *pgx.Conn) {
		var taken int
		must(c.QueryRow(background, `select count(*) from pg_stat_activity
			where state = 'active' and query like 'select pg_sleep%'`).Scan(&taken))
		if taken >= 2*3 {
			w.r.Happened++
		}
		time.Sleep(20 * time.Millisecond)
	})
	w.spec.Pool = 0
}

// moveClock has a server whose clock is an hour from that of the processes.
func moveClock(w *world) {
	w.setClock(time.Hour * time.Duration(1-2*rand.N(2)))
	killWorkers(w)
}

// setPostgresClock puts functions before the server's own that tell the time, so that all
// of the server's statements have a clock that is so much ahead.
func (w *world) setPostgresClock(shift time.Duration) {
	const functions = `
		create schema if not exists moved;
		create table if not exists moved.clock (ahead interval not null);
		create or replace function moved.now() returns timestamptz stable language sql
			as 'select pg_catalog.now() + ahead from moved.clock';
		create or replace function moved.clock_timestamp() returns timestamptz volatile language sql
			as 'select pg_catalog.clock_timestamp() + ahead from moved.clock';
		alter database postgres set search_path = moved, pg_catalog, public;
		insert into moved.clock select '0' where not exists (select from moved.clock);`
	w.sql(func(c *pgx.Conn) {
		get(c.Exec(background, functions))
		get(c.Exec(background, "update moved.clock set ahead = $1 * interval '1 second'", shift.Seconds()))
	})
	w.sql(func(c *pgx.Conn) {
		var now time.Time
		must(c.QueryRow(background, "select clock_timestamp()").Scan(&now))
		if off := now.Sub(setclock.Real().Add(shift)); off.Abs() > time.Minute {
			must(fmt.Errorf("the server's clock is %v from where it should be", off))
		}
	})
}

// failCommits makes the server refuse a fifth of all commits at their end, as those of
// transactions that conflict are. It takes its time for that, so that another statement
// stands behind the locks of the one that fails, and goes first.
func failCommits(w *world) {
	const refusal = "this commit is meant to fail"
	race(w, refusal, `
		create schema failing;
		create function failing.fail() returns trigger language plpgsql as $$ begin
			if txid_current() % 5 = 0 then
				perform pg_sleep(random() * 0.05);
				raise exception '`+refusal+`' using errcode = '40001';
			end if;
			return null;
		end $$;
		create constraint trigger fail after insert or update or delete on tickwheel.job
			deferrable initially deferred for each row execute function failing.fail()`)
}

// beSerializable makes all transactions serializable that do not say otherwise, so that the
// server ends some that conflict.
func beSerializable(w *world) {
	w.sql(func(c *pgx.Conn) {
		get(c.Exec(background, "alter database postgres set default_transaction_isolation = serializable"))
	})
	race(w, "could not serialize access", "")
}

// race cancels many jobs at the moment when they are claimed, until the log has a text.
func race(w *world, text, change string) {
	w.spec.Race = 40
	untilHappened(w, text, change, func(*pgx.Conn) { time.Sleep(100 * time.Millisecond) })
}

// lockTable holds a lock on the jobs for a while, as a change of the table does.
func (w *world) lockTable() {
	w.sql(func(c *pgx.Conn) {
		must(pgx.BeginFunc(background, c, func(tx pgx.Tx) error {
			_, err := tx.Exec(background, "lock table tickwheel.job in share row exclusive mode")
			pause(1500*time.Millisecond, time.Second)
			return err
		}))
	})
}

// timeOut makes the server give up statements after some milliseconds, for half of the
// time.
func timeOut(w *world) {
	untilHappened(w, "canceling statement due to statement timeout", "set statement_timeout = 0", func(c *pgx.Conn) { // that is our own
		for _, ms := range []int{1 + rand.N(5), 0} {
			get(c.Exec(background, fmt.Sprintf("alter system set statement_timeout = %d", ms)))
			get(c.Exec(background, "select pg_reload_conf()"))
			pause(0, 600*time.Millisecond)
		}
	})
}

// provokeDeadlocks locks a job that is about to be claimed, waits whether a claim stands
// behind it, and then wants those that the claim has locked. The engine is whom the
// server chooses to fail: it looks for a deadlock after 300 ms, and we after 10 s. A claim
// that passes over what is locked meets none. What it counts is how often jobs were
// locked.
func provokeDeadlocks(w *world) {
	const lockNotAvailable = "55P03"
	untilHappened(w, "", "set deadlock_timeout = '10s'; set lock_timeout = '2s'", func(c *pgx.Conn) {
		err := pgx.BeginFunc(background, c, func(tx pgx.Tx) error { return lockBackwards(w, tx) })
		var pg *pgconn.PgError
		if !errors.Is(err, pgx.ErrNoRows) && !(errors.As(err, &pg) && pg.Code == lockNotAvailable) {
			must(err) // else nothing was claimed meanwhile
		}
	})
}

// lockBackwards first holds up a claim, so that the next one is of many jobs, and then
// makes that one wait for the last of its jobs, with all others of it locked.
func lockBackwards(w *world, tx pgx.Tx) error {
	var last string
	if err := tx.QueryRow(background, fmt.Sprintf(lockDue, 400)).Scan(&last); err != nil {
		return err
	}
	w.r.Happened++
	inner, err := tx.Begin(background)
	if err != nil {
		return err
	}
	_, err = inner.Exec(background, fmt.Sprintf(lockDue, 60))
	if err == nil {
		_, err = behind(inner)
	}
	time.Sleep(300 * time.Millisecond)
	if err := errors.Join(err, inner.Rollback(background)); err != nil {
		return err
	}
	if _, err := behind(tx); err != nil {
		return err
	}
	_, err = tx.Exec(background, `select id from tickwheel.job
		where id < $1 and state = 0 and due < now() + interval '400 ms' order by id desc for update`, last)
	return err
}
