// Package protocol has no code but tests: a model of how the engine of package jetstream
// keeps its promises. It is a small state machine of one stream, two workers and the
// users of two jobs, in which each question and each write of the engine is one step, and
// the steps of all are taken in every order. A developer who changes a step of the engine changes it
// here, too, and sees within a minute what that breaks, in as few moves as it takes.
//
// What may go wrong: a worker dies, or is frozen for longer than its lease, between any
// two steps; the answer to a write is lost; the server's clock is set back, or leaps
// forward, so that what has a TTL is gone; a consumer is lost, and hands out all once
// more; a job waits in a worker for longer than anybody remembers; a server that is killed
// takes the removal of a job back.
//
// The promise, in every state: an accepted job has ended, or a copy is there that
// can be run, and if nothing more goes wrong it ends. A job that has ended does not begin; one that
// Cancel returned true for has not run and does not begin; Cancel does not return false
// for what it has canceled. Two never run a job under a valid lease. Nothing begins
// before its time. A copy of what has ended has a status that says so. The watermark never
// goes down. An Add, and the end of an attempt, can always be written.
//
// # The moves, and their names in the engine
//
//	add, insert          insert.go: insert, insertGroups; record.go: recordWrite (with the mark's condition)
//	openFor, isFar       watermark.go: openFor; geometry.go: isFar
//	call, read           change.go: cancelAs, move; find.go: forwarded, current
//	open                 find.go: isOpenBy
//	leaveFar             change.go: leaveFar (and the end of move)
//	confirming, undoing  change.go: confirmCancel; claim.go: confirm; handle.go: reopened
//	move                 record.go: moveGroup
//	feed                 fetch.go: startNear, attend, round, fetch (with statusesAmong)
//	claim, seize         claim.go: claim, claimAll, commitClaims
//	settling             claim.go: restand, standing; lease.go: leaseOf
//	begin, live          internal/worker: begin, mayRun, stands, lose
//	finish, acks         finish.go: finish, end, checkEnd; record.go: moveGroup (for Retry)
//	chores, moveDown     cascade.go: cascade, moveDown
//	moveLate, storeAnew  cascade.go: moveLate
//	closeFar             cascade.go: closeFar
//	closeNear, askKind   close.go: pastOf, endedOf, closeNear, forget
//	thinning             close.go: closeNear, purgeEnded
//	haveEnded            close.go: endedNobodys
//	noting, note         watermark.go: noteEmpty, wasRemoved
//	resume               close.go: resume
//	clock                (the server's clock, TTLs, consumers)
//
// Dead jobs and batches of several jobs are left out: they are writes in the commits
// that are here. Schedules and their occurrences have a model of their own, schedules_test.go,
// and so have the permits of limits, permits_test.go, their tokens and CancelRunning,
// tokens_test.go, keys and signals, keys_test.go, and the comparison of claims with a store that
// went back, wentback_test.go. A lease may be over at any moment, and then is so for all; what a worker
// that has died had claimed may be taken over at once. An Add chooses its bucket by the watermark
// as it is, and may arrive at any later time.
package protocol
