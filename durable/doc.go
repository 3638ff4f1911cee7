// Package durable runs delayed jobs that survive a crash and spread over nodes.
//
//	q, err := durable.Open(ctx, engine)
//	q.Handle("remind", func(ctx context.Context, a *durable.Attempt) error { ... })
//	ref, err := q.Add(ctx, durable.Job{Kind: "remind", After: 10 * time.Minute, Payload: text})
//	err = q.Run(ctx) // until ctx ends
//
// The engine is the truth: it stores jobs, replicates them, and decides who has which.
// Package durable/jetstream keeps them in a stream of a NATS server or cluster, and
// durable/jetstream/embedded in such a server within the process. Package durable/postgres
// keeps them in a table of PostgreSQL. The Queue is small: this API, a window of jobs that
// are due soon on a timing wheel, which gives the last seconds their precision, and the
// claim.
//
// # Promises
//
//  1. A job that Add has accepted runs at least once, or was canceled, or is dead and
//     listed. A kill of any process at any moment loses none; an engine says what else it
//     survives.
//  2. A Cancel that returned true: no attempt begins any more. If none has failed before,
//     the job has not run and never will. From 50 to 300 ms before it is due (it adapts to
//     how long the engine takes to commit) Cancel returns false.
//  3. Never early by the engine's clock. A worker's wall clock is not looked at.
//  4. Late by a tick of the wheel while workers keep up; by the lease after the death of a
//     worker; by election and lease after that of a server.
//  5. Attempts are counted when a job is claimed, so that a job that kills its process ends
//     as dead, too. A handler may run for longer than the lease, which is renewed. A process
//     that was frozen for longer learns of it ([ErrLeaseLost]), and cannot finish what
//     another one has taken over.
//  6. A start with any number of jobs overdue takes bounded memory, and runs them in about
//     the order of their time.
//  7. Bad input gets an error that names it, and nothing is written.
//
// What it does not promise: a job that ran when its process was killed may run again, so
// handlers are idempotent, by Ref. Jobs have no order among each other.
package durable
