// Package driver is for the authors of engines, as database/sql/driver is for the authors
// of drivers. It has the interfaces that an engine implements, the records that engines
// and package durable exchange, and the arithmetic of limits, which all engines share.
// Package enginetest tests an engine.
//
// Programs that add and run jobs use package durable, and need at most the name [Engine] of
// this one. The types of durable that engines see, too, are defined here, such as [Job],
// [Attempt] and [Info].
package driver

import (
	"context"
	"iter"
	"time"
)

// Engine stores jobs, hands them out, and decides which worker has which job. A Queue
// keeps no state that its engine does not know. Package enginetest has the tests that
// every engine must pass; they define each method exactly.
//
// Times are by the engine's clock, which Now reads. A Queue passes whole microseconds.
// All methods may be called by several goroutines at once. Where a method takes a slice,
// its results have the same length and order, and an error is that of one element. An
// engine makes one commit of a slice where it can. If a request certainly was not carried
// out and may succeed soon, as during the election of a leader, the engine repeats it
// until ctx ends. Every method returns soon after its ctx has ended, even if the store is
// stuck.
//
// An engine keeps these, whatever fails:
//
//  1. A job that Insert has stored stays until it was finished as done, was canceled, or
//     is dead and its retention has ended; and until its Retain, if any, has ended.
//  2. If Cancel, Move and Claim of one job overlap, one of them wins.
//  3. No other worker can claim a claimed job until the first has finished or released
//     it, or has not called Heartbeat for longer than its lease.
//
// An engine may also have a method Health(context.Context) error, which returns an error
// if the engine answers but cannot store. Queue.Health calls it first.
//
// The engine of package memory also has a method Manual() func() time.Time: its result
// returns the time of a clock that is set by hand. And it has OnSet(func(was, now
// time.Time)), which makes each step of that clock call a function. A struct that embeds an
// Engine hides these methods, and must pass them on. Without Manual, Advance of a
// memory.Clock does not return. Without OnSet, schedules stand still after that clock was set
// back far, until it has caught up.
type Engine interface {
	// Insert stores the records. It stores records with the same ID and Born once, so it
	// may be repeated after ErrUncertain. Errors: ErrExists, ErrFull, ErrUncertain,
	// ErrStorage. The Ref of a record with an error is empty.
	//
	// Record.OnKey decides about a job that waits under the key. A claimed job that still
	// has the key is ErrExists, for any OnKey. Replace and Later end a waiting job that is
	// not due as Cancel does, in the commit that stores the record, which takes the key over;
	// with both, Record.Succeed changes the record first. If the waiting job is due
	// (Record.IsDueFor), the record goes into it (Record.GoInto), and Insert returns its Ref.
	// That is another version, so a claim that is under way fails. So after the first time it
	// waits with the next one, until the job is claimed or for a second. Keep stores nothing
	// and returns the Ref of the waiting job. A waiting job that has expired (Record.Expired)
	// does not have the key: the record takes it, and the job dies when its turn comes.
	Insert(ctx context.Context, recs []Record) ([]Ref, []error)

	// Cancel ends waiting jobs. True: no attempt begins any more. False without an error:
	// the job runs, has ended, or another call has canceled it. ErrNotFound: the Ref is
	// not one of this engine.
	Cancel(ctx context.Context, refs []Ref) ([]bool, []error)

	// Move changes when a waiting job is due. False without an error: as for Cancel.
	// ErrFull: the store has only its reserve for the ends of jobs left.
	Move(ctx context.Context, ref Ref, at time.Time) (bool, error)

	// Signal makes the job that waits under the key due at once, by at or, if that is earlier, the
	// time of the engine, whose clock may have been set back. It stores the payload as
	// its Record.Signal, in one commit. It returns false without an error if no job waits
	// there, or if the job takes no signals, already has one, or has expired. If Signal, Cancel, Move
	// and Claim of one job overlap, one comes first, and the others see its result.
	// ErrFull: as for Move.
	Signal(ctx context.Context, key string, payload []byte, at time.Time) (bool, error)

	// Redrive makes a dead job wait until at, with no attempt begun. ErrNotFound: it is
	// not dead. ErrExists: another job has its key.
	//
	// Redrive clears Expires, so that the job can run.
	Redrive(ctx context.Context, ref Ref, at time.Time) error

	// Delete removes a job that has ended. ErrNotFound: it has not, or is not kept. If Delete and Redrive of
	// one job overlap, one of them wins.
	Delete(ctx context.Context, ref Ref) error

	// Lookup returns the job that has the key, or ErrNotFound. It also returns a waiting job that
	// has expired, until another takes its key. A Ref may be old by some seconds, as Get and Scan
	// may be; ErrNotFound may not, and no other answer of an engine may: also one that writes
	// nothing, such as ErrExists or false, is true at a time during the call.
	Lookup(ctx context.Context, key string) (Ref, error)

	// Get returns the Info of a job that is kept, or ErrNotFound.
	Get(ctx context.Context, ref Ref) (Info, error)

	// Progress says of each job whether it has ended, for Queue.Await. It makes few requests for
	// thousands of jobs, and reads no payloads. It may report a job as it was some seconds ago, but a
	// job that it reports as ended has ended. ErrNotFound: the Ref is not one of this engine.
	Progress(ctx context.Context, refs []Ref) ([]Progress, []error)

	// Scan iterates over the jobs that are kept, in no order. It is not a snapshot: it
	// may return a job that changes meanwhile as it was or as it is, and more than once. It
	// returns each job that exists from its begin to its end at least once, also one that
	// is moved, retried or redriven meanwhile, and each other one of these exactly once. An
	// error is the last element.
	Scan(ctx context.Context, f Filter) iter.Seq2[Info, error]

	// SetSchedule stores a schedule if the stored one has the revision was, 0 for none;
	// otherwise it returns ErrChanged. It may be repeated after ErrUncertain: a stored
	// schedule with the revision of s comes from an earlier try, and nothing is stored. So
	// a call with was as the revision of s confirms what Schedule has returned, which may be
	// old; both are 0 where it has found none. Last does not change.
	// The job under OccurrenceKey changes in the same commit: one that runs, or has had
	// an attempt, stays; otherwise replace returns the occurrence that waits afterwards,
	// and a nil replace leaves no occurrence.
	//
	// An empty s.Definition deletes the schedule, with its Last. Schedules then leaves it
	// out, and Schedule returns it for as long as an occurrence may run, at least a day.
	SetSchedule(ctx context.Context, was int64, s Schedule, replace Replace) error

	// Schedule returns a schedule, or ErrNotFound.
	Schedule(ctx context.Context, name string) (Schedule, error)

	// Schedules iterates over the schedules, as Scan does over jobs.
	Schedules(ctx context.Context) iter.Seq2[Schedule, error]

	// Unhandled returns the kinds with a due job and without a handler in a living
	// worker, the longest due first. It may leave out some of many kinds. It may be some
	// seconds behind, and miss a job that has just become due. It may query each kind.
	Unhandled(ctx context.Context) ([]Unhandled, error)

	// Page returns up to n jobs that the Filter selects, whose State is not 0, in the
	// order of their Cursors. It returns only jobs after the given Cursor; the zero
	// Cursor is before all. The order is about that of their due times; dead jobs are in
	// the order in which they died or were due. Page returns the Cursor of the next page,
	// zero if no job follows. It is not a snapshot, but leaves out no job that exists all
	// the time and does not change.
	Page(ctx context.Context, f Filter, after Cursor, n int) ([]Info, Cursor, error)

	// Backlog describes the waiting jobs; [Backlog] says how exactly.
	Backlog(ctx context.Context) (Backlog, error)

	// Workers returns the living workers, with Kinds and AllKinds, and the dead workers
	// that hold jobs, in the order of their names.
	Workers(ctx context.Context) ([]WorkerInfo, error)

	// FlowControl returns the limits and pauses: an empty one of revision 0 if none was
	// ever stored. Each worker calls it every second, so it should be cheap.
	FlowControl(ctx context.Context) (*FlowControl, error)

	// SetFlowControl stores limits and pauses if the stored ones have the revision was;
	// otherwise it returns ErrChanged. It may be repeated after ErrUncertain: stored ones
	// with the revision of r come from an earlier try, or from another call that has not
	// returned yet. So a call with was as the revision of r confirms what FlowControl has
	// returned, which may be old. Claims started after SetFlowControl returns see the new limits and
	// pauses, on every engine. A claim that was under way has ended by then, or sees
	// them, too. Workers are notified (Notice.FlowControl). The engine may forget the
	// counts of a removed limit.
	SetFlowControl(ctx context.Context, was int64, r *FlowControl) error

	// Usage returns the counts of the stored limits, in no order; a limit PerLane has one
	// for each lane. It may leave out idle Counters.
	Usage(ctx context.Context) ([]Usage, error)

	// CancelRunning notifies the worker that has claimed the job (Notice.Canceled): at
	// once and, until the claim ends, with each Heartbeat. So a lost message delays the
	// notice until the next Heartbeat. True: the job is claimed, and the request is
	// stored. The request does not affect a later claim, also of a worker that takes
	// over. False without an error: the job is not claimed. ErrNotFound: the Ref is not
	// one of this engine. It may be repeated after ErrUncertain.
	CancelRunning(ctx context.Context, ref Ref) (bool, error)

	// Now returns the engine's time, and the largest error of that in either direction.
	Now(ctx context.Context) (now time.Time, uncertainty time.Duration, err error)

	// Work registers a worker, so that it may claim. Without an answer it repeats the
	// request until ctx ends. On ErrReadOnly the Queue calls it again.
	Work(ctx context.Context, c WorkConfig) (Worker, error)

	// Close ends the connection, and its workers as if their process had died. It does
	// not change the store. It may be called twice.
	Close() error
}

// WorkConfig configures a worker.
type WorkConfig struct {
	Name      string        // Unique: no other worker has ever had it. ErrInvalid unless it is printable, of 1 to MaxWorker bytes; engines may take fewer.
	Kinds     *KindSet      // The kinds that Fetch hands out; nil for none.
	Lease     time.Duration // Without a Heartbeat for so long, others may take over its jobs.
	Ahead     time.Duration // Fetch hands out a job at least so long before it is due.
	Retention time.Duration // The time for which a dead job is kept.
	Polled    func()        // Fetch calls it after each successful poll, also an empty one; may be nil.

	// Holds, if not nil, reports for each job whether the Queue may have a claim of it: from
	// before the call of Claim until the end or the release is stored. It does not block. It
	// takes a lock of the Queue, so an engine calls it without one of its own.
	Holds func([]Ref) []bool

	// Revision, if not nil, receives the revision of the limits and pauses that a poll has read. If
	// the engine calls it about once a second, the Queue does not call FlowControl. It does not block.
	Revision func(int64)

	// Time, if not nil, receives the engine's time as a poll has read it, and the largest error of that. If
	// the engine calls it about once a second, the Queue does not call Now. It does not block. An
	// engine that wraps another one and changes Now must change this time, too.
	Time func(time.Time, time.Duration)

	// Trouble, if not nil, receives an error that keeps some jobs from running, or that may
	// lose them, while Fetch goes on. It does not block. It may be called with each poll.
	Trouble func(error)

	// Notify, if not nil, receives notices while Fetch is under way, and from Heartbeat. It
	// does not block. Several goroutines may call it at once. A notice may come twice, or
	// late. Notices of FlowControl and Freed may be lost, since the Queue polls every
	// second.
	Notify func(Notice)
}

// Worker claims and runs jobs.
type Worker interface {
	// Fetch hands out jobs a little before they are due, overdue jobs first, each to one
	// worker, until ctx ends; then it returns nil. It hands out only the open kinds of
	// WorkConfig.Kinds, and jobs that were on their way when a kind was shut. Overdue
	// jobs of other kinds delay no job, and cost the worker almost nothing, however many
	// they are. Fetch calls give from several goroutines; give blocks while the worker
	// can hold no more. A job may be handed out again, to the same worker or another; the
	// claim decides. Fetch returns an error if it cannot go on; the Queue calls it again
	// after a while. An error that wraps ErrClosed or ErrVersion is final, and ends Run.
	Fetch(ctx context.Context, give func([]*Delivery)) error

	// Claim claims jobs that Fetch has handed out. It never fails: if the outcome is
	// unknown, it returns RetryLater.
	//
	//   - Lost answers: the worker may claim the jobs once more. That is not another
	//     attempt and not a crash; the claim keeps its permits, and takes none.
	//   - Attempts: the engine stores whether a claim was exact (Delivery.Exact), and
	//     otherwise how many attempts had begun before it. A claim that never ended, because
	//     its worker died or was cut off, counts as an attempt only if it was exact.
	//   - Suspects: a job with such a claim is a suspect, and is claimed exactly or not at
	//     all. Crashes counts its claims that never ended since the last attempt that ended.
	//   - Keys: an exact claim of a job with FreeWhenBegun frees its key, in the same commit.
	//     A claim of a job that has freed its key before is Gone if a newer job of the key
	//     supersedes it, as in Finish; the job ends.
	//   - Limits: a job that a limit covers, or that is paused (FlowControl.Covering), is
	//     claimed exactly or not at all. Without Exact the answer is Throttled, with After 0,
	//     or Suspect if the job is one. A paused job is Throttled, with After RetryInterval,
	//     or the rest of the pause if that is less, and Limit 0 ([Paused]). A pause ends by the
	//     engine's clock, as well as the engine's process knows it. Otherwise Take decides by the Counters and the engine's clock: the
	//     claim takes permits and tokens in the same commit, or is refused.
	//   - Permits: the engine stores which permits a claim has. Finish, and Release of a
	//     claimed job, give back exactly these in their commit, but never tokens. Workers are
	//     notified (Notice.Freed), at least if no permit was left.
	//   - Takeovers: a claim that takes over keeps the permits of the dead one, unless they
	//     were freed. They are freed after the lease if others wait for them, since a takeover
	//     may never come. So no count can drift, and a limit is never exceeded through any
	//     crash.
	Claim(ctx context.Context, held []*Delivery) []ClaimResult

	// Finish stores the ends of claimed jobs. It is all or nothing for each job: the end,
	// the next attempt, the key, the next occurrence. The job is no longer a suspect. With
	// Retry, a job that has freed its key takes it again. If a newer job took the key since,
	// and was not canceled before it began, the job ends as with Done. Newer is the order in
	// which jobs took the key, not the order of Born. ErrLeaseLost: another worker has taken over, and
	// nothing was changed. ErrChanged: the job is an occurrence (see Record.IsOccurrence),
	// the revision of its schedule, 0 without one, is not that of the Completion, and
	// nothing was changed. For an error that wraps ErrClosed or ErrVersion see Fetch. On any
	// other error call it again.
	Finish(ctx context.Context, outs []Completion) []error

	// Release gives back jobs that were handed out, claimed or not. The attempt of a
	// claimed job does not count; a suspect remains one. The engine hands out a job again
	// after a delay that may be rounded up, or as soon as FlowControl has returned a new
	// revision, since a limit may have deferred the job. Jobs that another worker has
	// claimed since remain with that worker. Release may fail: jobs that were not claimed
	// are handed out again after the lease in any case, and others after Close; until
	// then the Queue calls it again.
	Release(ctx context.Context, held []*Delivery, after time.Duration) error

	// Heartbeat renews the lease on all jobs of the worker. The Queue calls it three
	// times in a lease, and sometimes more. It returns ErrLeaseLost if the lease had
	// ended before it was renewed, so that another worker may have taken jobs over; a
	// process that was suspended learns of it this way. If it returns nil, no job was
	// taken over since the last Heartbeat that returned nil, or since Work. For an error
	// that wraps ErrClosed or ErrVersion see Fetch.
	//
	// A lease says that a worker lives, not that it knows its claims. A store may be older
	// than its workers: after a failover to a standby that lags, a crash without a synced
	// log, or a restore. So Heartbeat also compares the claims that the store has of this
	// worker with those of the Queue (WorkConfig.Holds). A claim that the Queue does not know
	// is handed back within seconds: it gives its permits back, and other workers may claim
	// the job, as after a crash of this one. The engine first reads the claims and then
	// queries Holds, so that a claim on its way is known; and from then until it has handed
	// an unknown claim back it grants that to no call of Claim. An engine may know the
	// claims by itself instead, and may compare beside Heartbeat and Fetch. If comparing is
	// expensive it does so more rarely while nothing suggests that the store went back. The
	// results are notices (Notice.WentBack and those below it). No worker has a name or
	// number under which a store that went back may know another one.
	Heartbeat(ctx context.Context) error

	// Close ends the worker. Others may take over its claimed jobs at once.
	Close(ctx context.Context) error
}

// Schedule is a schedule as an engine stores it.
type Schedule struct {
	Name       string
	Definition string    // The schedule as text of the Queue; empty if deleted.
	Revision   int64     // Grows with each change.
	Last       time.Time // The time of the last occurrence that has ended; zero if none has.
}

// Replace decides which occurrence of a schedule waits after a change. It gets the Last
// of the schedule, and the occurrence that waits and has had no attempt, with at least
// its ID, its Due and its Occurrence, or nil without one. It returns the occurrence that waits
// afterwards: a new record, waits itself, or nil for none. After an error nothing is
// written.
//
// An engine calls it once it has read both, and commits the result only if neither has
// changed since. So it may call it several times, and with a lock: it must not call the engine.
type Replace func(last time.Time, waits *Record) (*Record, error)
