// Package postgres keeps durable jobs in a table of PostgreSQL: it is an engine for
// package durable, for programs that have their rows there already.
//
//	pool, err := pgxpool.New(ctx, dsn)
//	engine, err := postgres.Connect(ctx, pool)
//	err = engine.Migrate(ctx)
//	q, err := durable.Open(ctx, engine)
//
// A job can be stored in the transaction of the row that it is about:
//
//	tx, err := pool.Begin(ctx)
//	_, err = tx.Exec(ctx, "insert into orders ...")
//	refs, err := engine.AddTx(ctx, tx, durable.Job{Kind: "remind", After: time.Hour, Payload: id})
//	err = tx.Commit(ctx)
//
// and its end be written down in the transaction of its handler, so that its effect is there
// exactly once: see [Engine.CompleteTx]. For package database/sql there are [Engine.AddSQL]
// and [Engine.CompleteSQL]. Triggers, and programs in other languages, call a function:
//
//	select tickwheel.add_job('remind', convert_to(to_jsonb(new)::text, 'UTF8'), now() + interval '1 hour');
//
// Its parameters are kind, payload, due, key, lane, priority, meta, max_attempts, timeout
// and expires; all but kind may be left out. It returns the job's Ref, or null if another job
// has the key, and refuses what Add does with code 22023. It is there if and only if the
// transaction is committed, and announced as with AddTx. Nobody but the owner may call it
// before he was granted that.
//
// Each Queue has an engine of its own; any number of processes may connect to one schema.
// It is tested with PostgreSQL 15. Versions of this package that may run together are told
// by the schema, see [Engine.Migrate].
//
// # Settings
//
// The server decides what survives a power cut: with synchronous_commit on, its
// default, all that Add and AddTx have stored. Off, the last moments may be lost, and
// jobs that had ended in them run again. With a synchronous standby the same holds for
// the loss of the primary. This package turns it off only where a crash may take back
// what was done: for handing out, announcing and sweeping.
//
// The pool needs about eight connections for a worker, besides those that your handlers
// take. An engine with a worker opens two more outside the pool, one for LISTEN and one
// for the lease. A proxy that gives one connection to several clients, such as PgBouncer
// by transaction, drops announcements; jobs are found by polling then. Statements are
// prepared: such a proxy has to support that, or the pool's DefaultQueryExecMode be set
// to pgx.QueryExecModeExec. PgBouncer before 1.21 may exit when a client cancels a query, as
// pgx does when its context ends in the middle of one (PgBouncer's issue 822).
//
// Connections of workers should be of one role. Each worker looks for connections of its
// role that hang in the middle of one of this package's statements, since the network has
// lost the rest of what was sent or the client does not take the answer, and ends them with
// pg_terminate_backend when they have done so for a third of the lease. Until then the rows
// that such a statement has locked are passed over. It needs track_activities, which is on
// by default.
//
// [Grants] has the rights of three roles: one that adds jobs, one that works, one that
// migrates.
//
// Migrate sets the table's fillfactor, and has autovacuum come early and without a pause.
// A transaction that stays open for long, of whomever in the database, keeps dead rows
// from being removed: looks for jobs take longer, and the table grows.
//
// # How it works
//
// A job is one row; its state says whether it waits, runs, is dead or has ended. A look
// for jobs marks rows that are due soon as in this worker's hands, past those that others
// are marking at that moment (for update skip locked). Claim, cancel and move are updates
// on the condition that the job waits in the version that was handed out, so one of them
// wins. An end is an update or a delete on the condition that it is the end of the last
// claim. Its consequences, such as the next occurrence, are in the same statement.
//
// A look asks for some kinds: those that were announced, that had more than one look takes,
// or that the worker has room for again; and five times a second for all that it can run.
// Each is a range of the index on kind and time, so jobs of other kinds are not even passed,
// however many are overdue. At a thousand kinds such a look at all takes some milliseconds.
//
// A worker has a row with its kinds and the end of its lease, by the server's clock. The jobs
// of a worker whose lease is over, or whose row is gone, are handed out again.
//
// Statements are for many jobs at a time, by arrays; they lock rows in the order of their
// ids. Claims, ends and releases pass over what another transaction has locked, and tell it
// from what is gone: they ask for it again. Cancel, Move, Redrive and Delete wait for it. Where the
// server still finds a deadlock, with transactions of yours, the statement
// is tried again, as after a serialization failure, a timeout, or a restart.
//
// # Invariants
//
//   - A job that waits or runs has its key in a unique index; one that is dead or has
//     ended has not.
//   - A claim says in the row whether it is exact, and how many before it never ended,
//     so that who takes over can tell whether an attempt counts. A takeover locks the
//     row of the worker whose lease is over, so that a late beat learns of it.
//   - Each claim adds one to the row's count of claims, so what a worker claimed that has
//     been overtaken fits no row.
//   - A row that was born less than 75 s ago is not removed: its job may be inserted once
//     more, by one who does not know that it was stored. A job that was born more than 60 s
//     ago is not inserted.
//   - No column that claim and end change is in an index, unless the job has a key.
//   - A kind that was shut when it was to be looked at is looked at when it is opened, from
//     where it was left; and from its beginning, if that was long ago.
//   - What a call returns is of the one try that was committed.
//   - The places taken of a limit are those that rows of jobs name whose claims have not ended.
//     Both change in one statement, which locks the jobs first, then what is counted, by limit
//     and lane. Nothing is claimed by limits other than those in the row.
//
// Read it in this order: sql/1.sql to sql/8.sql (the tables, and add_job), ref.go, insert.go, onkey.go, tx.go
// with caller.go, change.go, feed.go with bell.go, worker.go with flow.go, complete.go, schedule.go,
// sweep.go, find.go, retry.go. Each statement is a file in sql.
package postgres
