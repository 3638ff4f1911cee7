// Package durable runs delayed jobs that survive a crash and spread over nodes.
//
//	q, err := durable.Open(ctx, engine)
//	q.Handle("remind", func(ctx context.Context, a *durable.Attempt) error { ... })
//	ref, err := q.Add(ctx, durable.Job{Kind: "remind", After: time.Hour, Payload: text})
//	err = q.Run(ctx) // until ctx ends
//
// The engine stores jobs, replicates them, and decides which worker has which job.
// Module durable/jetstream keeps them in a stream of a NATS server or cluster, and its
// package embedded in such a server within the process. Module durable/postgres keeps
// them in a table of PostgreSQL. Package durable/memory is for tests: there three days
// pass in microseconds. The Queue is small.
// It has this API, the claim, and a timing wheel. The wheel holds the jobs that are due
// in the next seconds, and starts them on time.
//
// # Schedules
//
//	err = q.SetSchedule(ctx, "report", "CRON_TZ=Europe/Berlin 30 8 * * *", durable.Job{Kind: "report"})
//
// A schedule is stored under its name, and each occurrence with the end of the one before,
// in one commit. So it goes on for as long as any process has a handler for its jobs,
// whether or not that process knows the schedule. See [Queue.SetSchedule].
//
// # Limits and pauses
//
//	err = q.SetLimit(ctx, "per customer", durable.Limit{Kind: "mail", PerLane: true, Running: 4, Rate: 50, Burst: 100})
//	err = q.Pause(ctx, durable.Pausable{Lane: "customer 7"})
//	err = q.PauseFor(ctx, durable.Pausable{Kind: "mail"}, 10*time.Minute)
//
// A limit holds in all processes together: at most so many jobs of a kind, or of each
// lane, run at once, and at most so many begin in a second. It is stored, and so is a
// pause. The engine counts in the commit that gives a job to a worker, so no count can
// drift. A job that waits for a limit takes no handler and no attempt. A handler returns
// [Cooldown] to pause the jobs like its own, as when their API refuses requests for a while. See
// [Queue.SetLimit], [Queue.Pause], and [Queue.CancelRunning], which ends a job that runs.
//
// # The end of a job
//
// A job that is done or canceled is removed, unless it has a Retain. A dead job is kept for
// 30 days ([WithRetention]). [Queue.Await] waits for the end of a job, and [Queue.Why] says
// why it has not come.
//
// # Promises
//
//  1. A job that Add has accepted runs at least once, or it was canceled, or it is dead
//     and listed. If any process is killed at any moment, no job is lost. The
//     documentation of each engine lists what else it survives.
//  2. After a Cancel that returned true, no attempt begins any more. If no attempt had
//     failed or lost its worker before, the job has not run and never will. A job cannot
//     be canceled in the last 75 to 300 ms before it is due: then Cancel returns false.
//     This time adapts to how long the engine takes to commit. It holds as well for a
//     worker that was cut off, or frozen, with the job claimed: a handler begins only
//     under a lease that was renewed less than seven eighths of it ago.
//  3. No job begins early by the engine's clock. The wall clock of a worker does not
//     matter. If the engine's clock is set back, no job is lost, and jobs are due by the
//     new time; schedules go on by it ([Queue.SetSchedule]). If it is set forward, the
//     jobs that it passes over are due. If the clocks of a cluster's servers differ, a job
//     may be early by the difference after an election. Each step is logged, and counted in [Stats]. A worker follows within half
//     a second; until then jobs begin by the old time. A step forward by a lease or more
//     ends all leases: the contexts of handlers end, and until these return, their jobs
//     may run on another worker, too, beyond a limit on PostgreSQL.
//  4. While the workers keep up, jobs are late by a tick of the wheel. After the death of
//     a worker, the jobs that it had begun or fetched ([WithAhead]) are late by the lease,
//     and the time until they are delivered again: up to as long, in PostgreSQL the next
//     poll. After the death of a server, jobs are late by the election of another and the
//     lease.
//  5. An attempt counts if it has certainly begun. So a job that kills its process ends
//     as dead, after MaxAttempts and one starts, and none dies with it: see below. A
//     handler may run for longer than the lease, because the lease is renewed. A process
//     that was frozen for longer gets [ErrLeaseLost], begins none of its claimed jobs,
//     and cannot finish a job that another one has taken over.
//  6. Any number of jobs may be overdue at the start. They take bounded memory, and run
//     in about the order of their time. On JetStream two that are due within two minutes of
//     each other may run in either order. A worker holds payloads of 64 MiB, and on JetStream
//     at most 9 MiB are on their way to it, whatever the number of partitions.
//  7. Bad input gets an error that names it, and nothing is written. If the store or the
//     disk is full, Add returns [ErrFull], and accepts jobs again when there is room.
//     Package embedded describes the case that other programs fill its disk.
//  8. A limit is never exceeded, across all processes and through any crash. The jobs of
//     a process that is cut off count until its lease has ended: then their permits are
//     free, for the worker that takes the jobs over or for others. After a Pause has
//     returned, none of its jobs is claimed; after a PauseFor, until its end.
//
// # Jobs that kill their process
//
// A job is claimed a little ahead of its time, so that it begins on time. If its worker
// dies with it, nobody knows whether it had begun. This does not count as an attempt, but
// the job is a suspect until an attempt of it ends. A suspect, and a job that is on its
// last attempt, is claimed at the moment when it begins, so that the claim counts as the
// attempt: it is late by a commit. At most 1/16 of WithConcurrency suspects run at once,
// beside all other jobs; after two crashes, one at a time. A suspect that has run for a
// lease does not count. So other jobs lose an attempt or two to a job that kills its
// process. A job with MaxAttempts 1 never begins a second attempt.
//
// A job that was running when its process was killed may run again. So handlers must be
// idempotent, by Ref: package durable/crashtest tests that they are. Jobs have no order among each other.
package durable
