// Package jetstream keeps durable jobs in streams of a NATS server or cluster: it is an
// engine for package durable.
//
//	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
//	engine, err := jetstream.Connect(ctx, nc, jetstream.WithReplicas(3))
//	q, err := durable.Open(ctx, engine)
//
// Each Queue has an engine of its own; any number of processes may connect to one queue.
// Set sync_interval: always on each server, also of a cluster. With the default a power cut takes
// back up to two minutes of acknowledged writes. NATS.md says how much each setting loses, and has
// configurations, and the rights that a user of the server needs.
//
// A queue is one stream, or one for each of its [WithPartitions]. Jobs are stored by the hour
// in which they are due, and ten minutes before it by the 5 s, from which workers fetch
// them. A pending job takes 1 to 3 bytes of the server's memory.
//
// # Kinds
//
// The number of kinds costs almost nothing: 20,000 overdue jobs of 3,000 kinds take as
// long as those of 30. Each different set of kinds that workers have costs a consumer in
// each 5 s. A server makes and removes about 40 consumers a second; 100 sets are 20 a
// second. A kind that has a limit in a worker, or that a worker had no room for, is a set
// by itself; a worker has at most 64 such kinds.
//
// A worker whose kinds are new finds jobs that were stored for other workers within a
// second. If two kinds have the same hash, each is also handed to workers that cannot run
// it, which give it back for a quarter of their lease.
//
// A job that no worker can run costs nothing while it waits, but it keeps its 5 s open:
// the statuses of the other jobs that were due then stay, 200 bytes on disk each. If such
// a job comes due in each 5 s, no status is removed at all, which at 1000 jobs a second is
// some 17 GB a day. Statuses are removed within five minutes after a worker comes that
// runs the kind, or the jobs are canceled. Stats.Unhandled, the log and a metric name such
// a kind from the first lease on.
//
// # Keys
//
// An Add with a key writes two messages, and one that replaces the waiting job, or goes into it
// (OnKey), four or five. Adds of a process that come at one time share an atomic batch. Of
// those that follow one another under one key with Replace or Later only the last job is stored,
// and the first that is due, into which the others go.
// The status of a replaced job stays until its 5 s are removed, after it
// would have been due: 200 bytes on disk for each Add that pushes a job back. A claim with
// FreeWhenBegun, which frees the key, is a batch of two messages, and so is the end, unless a newer
// job has the key.
//
// On several replicas an answer that writes nothing, such as that of Keep, ErrExists, or a false
// of Cancel or Signal, costs a commit: a leader that was cut off must not give it.
//
// # Limits
//
// A claim or an end under a limit is an atomic batch of two messages, where others are one
// message; a limit with a rate has one message more for all claims of a call. Such a commit takes
// 3 ms on one disk, and the claims of all workers under one rate come one after the other.
//
// Messages that no stream keeps, below TWA_<queue>, notify other workers at once: that a
// permit is free, that the limits have changed, that a job is to be canceled. A worker
// whose user may not publish and subscribe there learns it within a second, or with the
// next heartbeat.
//
// A queue of several partitions has pauses, but no limits: SetLimit returns
// durable.ErrInvalid. A commit covers one stream, and a job and its permit would be in
// two. Use a queue of one partition for the kinds that need limits.
//
// # Versions
//
// The stored data has a version, in the metadata of each stream. A Connect of a newer version
// raises it. Programs with an older version are refused from then on: their calls return
// durable.ErrVersion and change nothing, their Run ends with it, and their jobs are taken
// over. There is no way back. Builds of one version work on one queue at the same time.
// FORMAT.md describes the data, and says what a new build may add without a new version.
//
// # A stream that went back
//
// A stream goes back when an earlier copy of the server's directory is put in its place, a backup is
// restored, or a power cut takes what was not synced. Workers that live notice it: before their
// next write after a lost connection, or with the next poll, within a second. Each says so at level
// ERROR, and Queue.Health returns durable.ErrWentBack until worker and stream agree on the worker's
// claims, some seconds later. Jobs whose claims came back with the stream run again, as after a crash. The
// context of a handler whose claim the stream lacks ends with durable.ErrLeaseLost. Jobs,
// schedules, limits, pauses and cancels that were stored since are gone: store them again. A worker
// that has written nothing since, to a stream that has grown beyond where it was, has lost nothing,
// and may notice nothing. NATS.md has the signs, and what is read anew.
//
// # Time
//
// A job is due by the clock of the server that leads the stream. That clock may be set, and after
// an election it is another server's. No step of it makes a job early by the clock as it then
// is; a step forward makes due what it passes over, and one of more than a lease costs each worker
// a lease. Where clocks of servers differ, an election makes a job early or late by their
// difference at most. Dead jobs are kept for as long as the server's clock says.
package jetstream

// How it works. It is a hierarchical timing wheel of two levels on a log: far buckets of an
// hour, and near buckets of 5 s. A bucket is a subject, or several, of the stream
// TW_<queue>_<partition>, and so are claims, keys, schedules and all else. FORMAT.md lists
// them.
//
// There are two levels, since a waiting job costs almost no memory in a bucket of an
// hour, and a bucket of 5 s soon ends and is removed as a whole. A job's version grows
// each time that its time changes: by a reschedule, a failed attempt, a redrive.
//
// Time:
//
//   - A bucket that a clock has closed stays closed: the watermark (watermark.go) is written
//     with the mark, and falls only when an older backup is restored. A job that is stored
//     after that, and is due below the watermark, is stored in the first bucket above it,
//     which is read from then on.
//   - Only its user changes when a job is due. So no step makes a job early by the new
//     time. The jobs that a step forward passes over are due. A job that is stored in the
//     bucket of its time is found although that lies in the future again.
//   - Long times within a process are measured by the process's own clock: stale handles,
//     and the heartbeats of others while the server's clock cannot be trusted.
//   - The server removes marks and heartbeats by its clock. They are not relied on after
//     a step.
//
// Invariants:
//
//   - A status is created on the condition that none exists, and replaced on the
//     condition that it is as it was read. So if a claim, a cancel and a move overlap,
//     one wins. The condition is always on one literal subject: the server does not check
//     wildcards against what is under way.
//   - The status of a claim is deleted only by forget (close.go), with all others of its closed bucket, and by
//     the claim that has just created it and finds the bucket closed (takeBack in release.go). All else
//     replaces it. A cancel or a cascade removes a status that it has created in vain, unless that expires first.
//   - A write whose answer was lost is not sent again before its outcome is read: by the token in a status
//     (cancelAs and moveIf in change.go, which retry.go calls again; standing in claim.go; checkEnd in
//     finish.go), or by the id of a job that is added (insertGroups in insert.go, afterFailures in keyed.go).
//     If that cannot be read, the caller gets ErrUncertain.
//   - The end of a version, and what follows from it (the next version, the forward, the
//     key, the next occurrence, the dead job), are one atomic batch.
//   - A job that replaces another is stored in the commit that cancels the other, which
//     waits, and takes its key. One that goes into another, which is due, is stored as its next
//     version, in the commit that ends the version before. A claim that frees the key writes so
//     in the key's message, in its commit. So a key names a job that waits, or that runs and keeps it: if the job is
//     claimed, the key is read once more after that.
//   - Nothing waits behind a key. While its job runs and keeps the key, an Add is refused, and the end leaves
//     a tombstone, names the schedule's next occurrence, or leaves the key to a newer job that has it (leaveKey).
//   - An insert that finds the key with another job may be a repeat: it looks for the forward
//     and the status of its own record first, and ends no other job then.
//   - Each end of an occurrence, and each change of its schedule, writes the schedule anew,
//     on the condition that it is as it was read. So of the two one comes first, and the
//     other sees it: a schedule that is not paused has an occurrence that waits or runs.
//   - A copy of a job, by a retried insert or a cascade that was cut off, has the id, the
//     version and the bucket of the first, and so its status.
//   - The status of a claim says whether it was exact, and how many claims before it
//     never ended, so that a worker that takes over knows whether an attempt counts.
//   - A permit of a limit is a job's if, and only if, the status of that is a claim that names
//     it: the two change in one commit. One that was left behind when a status was removed
//     with its bucket is found by reading first the permit, and then the status, as of when
//     the permit was taken; it is freed if it is as it was read.
//   - The limits are read again after a claim: if others were stored meanwhile, the claim
//     is given back. So each claim started after that sees the new limits.
//   - A heartbeat that comes later than a lease after the one before, by the server's clock,
//     tells its worker that the lease is lost. A clock that is set forward by as much
//     costs each worker a lease: the contexts of its handlers end.
//   - The bucket of a version is that of the subject where it is stored. If that is not
//     the one of its time, a forward leads there, which is written in the same commit.
//   - A bucket closes when the consumers of all queues that it has something in say that
//     all has ended, and nothing in it is in a queue without one. Each queue is purged up
//     to its own consumer's ack position, never another's, before which jobs may wait.
//     With several replicas the leader must have nothing after that position, since a
//     consumer may be on a server that is behind.
//   - Only messages that have ended, are gone from the stream, or are stored elsewhere
//     are acknowledged, and never after a conflict.
//   - A message leaves a far bucket when its version has ended as canceled or moved and
//     that is sure, and not before. Its status stays until the near bucket closes.
//   - A status outlives all copies of its job: close.go. No repeat enters a bucket that is
//     marked. With several replicas the first try of an insert may. If a repeat was stored there
//     before the mark, the message f.<id>.repeated says so, and the late one is no job. A worker that has created a status reads the mark after that, and
//     removes the status if the bucket is closed.
//   - A claim, a cancel and a takeover read their conditions as of their own write: a
//     deposed leader that does not know it answers with old data (LastSince in internal/stream). An
//     answer that writes nothing rests on what was read before, and a witness confirms it
//     (ifStands, in stands.go).
//   - A sequence that was read before the stream went back is no condition of a write after that, and nothing
//     is acknowledged or removed by it: it may be another message's. So the past is looked at when the
//     connection was lost, before the next write (checkPast in internal/stream/back.go; stream.go there
//     notices two of the signs, which history.go lists).
//   - A worker's claims are known here from before they are written until their end or their release is
//     stored. So one that is in the stream, and unknown here after that was read, is forgotten (reconcile.go).
//   - A question that any server may answer, and one about a consumer, is never waited for as
//     long as a server may be frozen: silent.go in internal/stream.
//   - No consumer is trusted: it may hand out anything any number of times. But its ack
//     position is right, since only ended messages are acknowledged, and only those are
//     removed.
//
// One job, by its messages. The buckets are 5 s and an hour, the lead is 10 minutes and the settling time 10 s. At 9:00 on
// January 1, 2026, in UTC, a job is added that is due at 12:00:03. Its near bucket is 353453760, the number of its 5 s
// since 1970, and its far one is 490908, the number of its hour.
//
//	 9:00:00  h.490908               the record; the hour begins to be moved at 11:50
//	11:50:00  q.353453760.<queue>    the record once more, unless m.353453760 is there; then that of h is acknowledged
//	          m.h490908, t           the far bucket has nothing left: its mark, and the watermark that says so
//	12:00:03  c.353453760.<id>.0     claimed: there was no such message, and after it there is no m.353453760
//	12:00:04  f.<id>                 the attempt has failed, and the next is in 30 s: 353453766 1, its bucket and version
//	          q.353453766.<queue>    the record, of version 1
//	          c.353453760.<id>.0     moved; the three are one commit
//	12:00:15  m.353453760, t         all in the near bucket has ended, and 10 s are over; then its q and c are removed
//	12:00:34  c.353453766.<id>.1     claimed
//	12:00:35  f.<id>                 a tombstone
//	          c.353453766.<id>.1     done; both are one commit, and the Ref finds nothing from now on
//	12:00:45  m.353453766, t         as before, and nothing is left of the job
//
// The files. Each uses only those that come after it, and each type is one story, with the lock of that story or with none.
//
//	backup.go, archive.go, connect.go         copies of a queue, and their format; opening a queue
//	fetch.go, seen.go                         a Fetch: reading queues; what its polls read again
//	close.go, cascade.go                      closing near buckets; moving and closing far ones
//	consumer.go                               what these read through
//	worker.go, budget.go, engine.go           joins a worker's stories; how much it reads at once; what durable calls
//	finish.go, claim.go, claimplan.go         ends; every claim; which claims may be, by driver.Take, with their permits and tokens
//	reconcile.go, release.go                  claims that the stream and the worker know; those that are given back
//	part.go, options.go                       a partition: all of the following, of one stream; the options of a queue
//	flowcontrol.go, notices.go                limits and pauses; what workers tell one another
//	schedules.go, insert.go, keyed.go         recurring jobs; jobs that are added; those with keys
//	inserting.go, change.go                   a job on its way; cancels and moves
//	inspect.go, progress.go                   listings; how far many jobs are
//	record.go, permits.go, stands.go          the messages of a version, of a limit; answers that write nothing
//	retry.go, keys.go                         writes after conflicts and lost answers; which job has a key, and which after it
//	handle.go, find.go                        a job that is handed out; where a job is
//	kinds.go, lease.go                        which queue a kind has; whose lease is over
//	admission.go, watermark.go                whether a job still fits; which buckets are closed
//	subjects.go, wire.go, geometry.go         what is stored, and under which subjects; version.go
//
// Below all is internal/stream, a client of one stream: it asks, reads, writes, and knows whether the stream went back.
