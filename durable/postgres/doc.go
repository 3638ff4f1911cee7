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
// The transaction of a handler can store the end of its job, so that its effect is there exactly
// once: see [Engine.CompleteTx]. For package database/sql there are [Engine.AddSQL]
// and [Engine.CompleteSQL]. Triggers, and programs in other languages, call a function:
//
//	select tickwheel.add_job('remind', convert_to(to_jsonb(new)::text, 'UTF8'), now() + interval '1 hour');
//
// Its parameters are those of durable.Job, with due for At, such as kind, payload, max_attempts, on_key
// and retain; all but kind may be left out. It returns the job's Ref, or null if another
// job has the key. For an invalid job it fails with code 22023. The job exists if and only
// if the transaction is committed, and is announced as with AddTx. Only the owner may
// call it until EXECUTE is granted.
//
// Each Queue has an engine of its own; any number of processes may connect to one schema.
// It is tested with PostgreSQL 14 to 18. The schema stores which versions of this package may
// run together, see [Engine.Migrate].
//
// # Settings
//
// With synchronous_commit on, the server's default, all jobs that Add and AddTx have
// stored survive a power cut. With off, a power cut may lose the last moments: their jobs are
// gone, and jobs that had ended in them run again. With a synchronous standby the same holds for the loss of the
// primary. This package turns it off only for steps that a crash may undo: handing out,
// announcing and sweeping.
//
// The pool needs about eight connections for a worker, besides those that your handlers
// take. An engine with a worker opens two more outside the pool, one for LISTEN and one
// for the lease. They are opened and closed with the hooks of the pool (BeforeConnect, AfterConnect,
// PrepareConn or BeforeAcquire, BeforeClose), so that they have its role and its settings; AfterRelease is
// not called for them. They call the hooks from goroutines of this package, during a heartbeat: a hook must
// not call the engine. A proxy that gives one connection to several clients, such as PgBouncer
// by transaction, drops announcements. A worker notices and logs that, and then finds jobs within 250 ms,
// by polling. Statements are prepared: such a proxy has to support that. If it does not, set the pool's
// DefaultQueryExecMode to pgx.QueryExecModeExec. PgBouncer before 1.21 may exit when a client cancels a query, as
// pgx does when its context ends in the middle of one (PgBouncer's issue 822).
//
// Connections of workers should be of one role. A connection may hang in the middle of
// one of this package's statements, since the network has lost a part of it, or the
// client does not read the answer. Each worker ends such connections of its role with
// pg_terminate_backend after a third of the lease. Until then workers pass over the rows
// that such a statement has locked. This needs track_activities, which is on by default.
//
// [Grants] has the rights of three roles: one that adds jobs, one that works, one that
// migrates.
//
// Migrate sets the table's fillfactor, and makes autovacuum run early and without a
// pause. A transaction of any client that stays open for long keeps dead rows from being
// removed: polls for jobs take longer, and the table grows.
//
// A server that takes no writes, such as a standby, answers reads only. Other calls are repeated for a
// second, in which a standby may become the primary, and then return durable.ErrReadOnly. The connection is
// closed, so that the next one may lead to the primary, by target_session_attrs=read-write or by its name.
//
// # How it works
//
// A job is one row; its state says whether it waits, runs, is dead or has ended. A poll
// marks rows that are due soon as handed out to this worker, and passes over rows that
// others are marking at that moment (for update skip locked). Cancel and move
// are updates on the condition that the job waits. A claim needs the version that was handed
// out, of a job that waits or whose worker is dead. So one of them wins. An end is an update or a delete on the condition that it is the end of
// the last claim. Its consequences, such as the next occurrence, are in the same
// statement.
//
// A poll reads some kinds: those that were announced, that have more jobs than one poll
// takes, or that have opened again. Every 800 ms, or every thirtieth of a lease if that is shorter, it
// reads all kinds that the worker can run, and every 200 ms while notifications do not arrive. To find
// that out, each worker sends itself a notification every 10 s, by another connection. It notices at once
// that its connection was cut off, and within 12 s that notifications are dropped. Each kind is a range
// of the index on kind and time, so a poll does not pass over jobs of other kinds, however many are
// overdue. With a thousand kinds a poll of all takes some milliseconds.
//
// About once a second a poll also reads the time, the version of the schema, the revision of the limits,
// and whether a worker has died. A sweep comes every 2 s, and while the worker has no jobs every 10 s or
// third of a lease.
//
// A worker has a row with its kinds and the end of its lease, by the server's clock. The
// jobs of a worker whose lease has ended, or whose row is gone, are handed out again.
// Ids of workers are random.
//
// A server that went back has claims again that a living worker has ended. Each worker reads its
// claims, and leaves those that its Queue does not know as those of a dead worker: at once after
// a recovery of the server, and otherwise once in a third of a lease, in at most a thousandth of the
// time. BACKUP.md says what an operator does then.
//
// Statements take many jobs at a time, as arrays, and lock rows in the order of their
// ids. Claims, ends and releases pass over rows that another transaction has locked, and
// repeat the request for them. They wait 50 ms for a counter of a limit, which a transaction with CompleteTx
// locks until it ends. Cancel, Move, Redrive and Delete wait for locked
// rows. If the server still finds a deadlock, with transactions of yours, the statement is
// repeated, as after a serialization failure, a timeout, or a restart.
//
// # Invariants
//
//   - A job that waits has its key in a unique index, and so has one that runs, unless
//     FreeWhenBegun has freed the key. A job that is dead or has ended has not.
//   - The rows of one key have the order in which they took it, in ord. Where one with a higher ord is
//     there, a job that has freed its key neither takes it again nor is taken over. A row that has
//     begun and ended stays for that, until no older one waits or runs.
//   - A claim stores in the row whether it is exact, and how many before it never ended,
//     so that a worker that takes over knows whether an attempt counts. A takeover locks
//     the row of the worker whose lease has ended, so that a late heartbeat sees the
//     takeover.
//   - Each claim adds one to the row's count of claims, so an overtaken claim matches no
//     row.
//   - A row that was born less than 75 s ago is not removed: a client that lost the
//     answer may insert its job once more. A job that was born more than 60 s ago is not
//     inserted.
//   - A claim, and the end of a job that is done, change no indexed column, unless the job
//     has a key.
//   - When a kind opens, its poll begins at its last cursor, or else a second before the
//     poll that it missed. After ten seconds without a full poll it reads all times.
//   - A call returns the result of the one try that was committed.
//   - The permits taken of a limit are exactly those named by rows of jobs whose claims
//     have not ended. Both change in one statement, which locks the jobs first, then the
//     counters, by limit and lane. No claim uses limits other than those in the row.
//
// # Parts
//
// Each part holds parts that are below it, and none above. Its comment says its invariant, what guards it, and
// what it never does.
//
//	engine                                 Connect, Work, Close; the parts that a Queue calls
//	worker, fetcher                        leases, claims, ends; polls
//	inserter, txWriter, changer, scheduler each way to change a job that waits, or a schedule
//	limiter                                limits and pauses, and cancels of running jobs
//	announcer                              wakes each Fetch of any process
//	notices, notifier, dialer              what is to be sent; connections outside the pool
//	reader, migrator                       listings and counts; the tables and their versions
//	db                                     one server: its pool, its time, and its version
//	refs, statements                       the names of jobs, and the texts, of one schema
//
// Read it in this order: FORMAT.md, sql/1.sql (the tables, and add_job), engine.go, db.go, ref.go, insert.go, held.go, onkey.go,
// tx.go with caller.go, change.go, fetch.go with news.go, announcer.go, arrival.go, notifier.go and dial.go, worker.go with flowcontrol.go and
// notices.go, complete.go, schedule.go, sweep.go, wentback.go, find.go, inspect.go, retry.go, migrate.go, version.go. Each
// statement is a file in sql; statements.go leaves out its parts for limits where they are not needed, and puts permits_back.sql into the four that give permits back.
package postgres
