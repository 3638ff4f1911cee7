// Package driver is for the authors of engines, as database/sql/driver is for those of drivers: what
// package durable asks of an engine, the records that the two exchange, and the arithmetic of limits,
// which all engines share. Programs that add and run jobs use package durable; of this one they
// need the name of an [Engine] at most. Package enginetest tests an engine.
package driver

import (
	"context"
	"iter"
	"time"
)

// Engine keeps jobs, hands them out, and decides who has which. It is the truth: a
// Queue keeps nothing that an engine does not know. Package enginetest has the tests
// that every engine must pass; they say exactly what each verb owes.
//
// Times are by the engine's clock, which Now reads; those that a Queue passes on are
// whole microseconds. All methods may be called by several goroutines at once. Where a
// method takes a slice, its results have the same length and order, and an error is that
// of one element. An engine makes one commit of a slice where it can. An engine tries
// again by itself what certainly was not done and may succeed soon, such as during the
// election of a leader, until ctx ends. Every method returns soon after its ctx has ended,
// whatever has become of the store.
//
// An engine keeps these, whatever fails:
//
//  1. What Insert has stored stays until it has been finished as done, was canceled, or
//     is dead and its retention is over.
//  2. Of Cancel, Move and Claim at one time for one job, one wins.
//  3. A job that one worker has claimed no other can claim until the first has finished or
//     released it, or has not called Heartbeat for longer than its lease.
//
// An engine may have a method Health(context.Context) error, too, for what keeps it from
// storing though it answers; Queue.Health asks it first.
//
// The engine of package memory has a method Manual() func() time.Time, too: its result tells
// the time of a clock that is set by hand. A struct that embeds an Engine hides both methods,
// and has to pass them on. Without Manual, Advance of a memory.Clock does not return.
type Engine interface {
	// Insert stores the records. One that has been stored before, by ID and Born, is
	// stored once: it may be repeated after ErrUncertain. Errors: ErrExists, ErrFull,
	// ErrUncertain, ErrStorage. Where there is an error the Ref is empty.
	//
	// Record.OnKey says what becomes of a job that waits under the key. One that has been claimed and
	// has the key still is ErrExists, whatever OnKey says. Replace and Later end the job that waits as
	// Cancel does, in the commit that stores the record, which takes the key over; with Later the
	// record takes what Record.Succeed says. Keep stores nothing, and the Ref is that of the job that
	// waits.
	Insert(ctx context.Context, recs []Record) ([]Ref, []error)

	// Cancel ends jobs that wait. True: no attempt begins any more. False without an
	// error: it runs, has ended, or another call has canceled it. A Ref that is none of
	// this engine's is ErrNotFound.
	Cancel(ctx context.Context, refs []Ref) ([]bool, []error)

	// Move changes when a waiting job is due. False without an error: as for Cancel. ErrFull: a
	// store that keeps a reserve for the ends of jobs has nothing but that.
	Move(ctx context.Context, ref Ref, at time.Time) (bool, error)

	// Signal makes the job that waits under the key due at once and stores the payload as its
	// Record.Signal, in one commit. False without an error: none waits there, or it takes no
	// signals, or has had one. Of Signal, Cancel, Move and Claim at one time for one job, one comes
	// first, and the others see that. ErrFull: as for Move.
	Signal(ctx context.Context, key string, payload []byte, at time.Time) (bool, error)

	// Redrive makes a dead job wait until at, with no attempt begun, so that it is listed
	// as dead no longer. ErrNotFound: it is not dead. ErrExists: another job has its key.
	//
	// It expires no more: what has ended as expired is meant to run.
	Redrive(ctx context.Context, ref Ref, at time.Time) error

	// Delete removes a dead job, so that it is listed no longer. ErrNotFound: it is not dead.
	// Of Delete and Redrive at one time for one job, one wins.
	Delete(ctx context.Context, ref Ref) error

	// Lookup returns the job that has the key, or ErrNotFound.
	Lookup(ctx context.Context, key string) (Ref, error)

	// Get returns what is known of a job that is kept, or ErrNotFound.
	Get(ctx context.Context, ref Ref) (Info, error)

	// Scan goes over the jobs that are kept, in no order. It is not a snapshot: what
	// changes meanwhile may be seen as it was or as it is, but nothing is left out that
	// was there all the time. An error is the last element.
	Scan(ctx context.Context, f Filter) iter.Seq2[Info, error]

	// SetSchedule stores a schedule, if the one that is there has the revision was, 0 for none;
	// else it returns ErrChanged. It may be repeated after ErrUncertain: what is there with
	// the revision of s was stored by an earlier try. Last stays as it is. The job under
	// OccurrenceKey changes in the same commit. One that runs, or has had an attempt, stays. Else
	// replace says what waits from then on; if it is nil, nothing does.
	//
	// If s.Definition is empty the schedule is deleted, with its Last: Schedules leaves it out, and
	// Schedule returns it for as long as an occurrence may run, a day at least.
	SetSchedule(ctx context.Context, was int64, s Schedule, replace Replace) error

	// Schedule returns a schedule, or ErrNotFound.
	Schedule(ctx context.Context, name string) (Schedule, error)

	// Schedules goes over the schedules, as Scan does over jobs.
	Schedules(ctx context.Context) iter.Seq2[Schedule, error]

	// Unhandled returns the kinds of which a job is due and no worker that lives has a
	// handler, the longest due first; not all of them if they are many. It may be some
	// seconds behind, and say nothing yet of what has just become due. It may cost a look
	// at each kind that there is.
	Unhandled(ctx context.Context) ([]Unhandled, error)

	// Page returns up to n of the jobs that the Filter selects, whose State is not 0, in the
	// order of their Cursors, and those alone that come after one; the zero Cursor is before all.
	// That is about the order in which they have been due, of dead ones that in which they
	// died or were due. It returns the Cursor to go on from, zero if there are no more. It is no
	// snapshot, but leaves out nothing that was there all the time and did not change.
	Page(ctx context.Context, f Filter, after Cursor, n int) ([]Info, Cursor, error)

	// Backlog returns what waits; see [Backlog] for how exact that is.
	Backlog(ctx context.Context) (Backlog, error)

	// Workers returns the workers that live, and those dead ones that hold jobs, in the order
	// of their names; of the living with Kinds and AllKinds.
	Workers(ctx context.Context) ([]WorkerInfo, error)

	// FlowControl returns the limits and pauses: none, of revision 0, if none were ever stored.
	// Each worker calls it every second, so it should be cheap.
	FlowControl(ctx context.Context) (*FlowControl, error)

	// SetFlowControl stores limits and pauses, if those that are there have the revision was; else
	// it returns ErrChanged. It may be repeated after ErrUncertain: what is there with the
	// revision of r was stored by an earlier try, or by another call that has not returned
	// yet. Claims started after it returns see the new limits and pauses, on every engine, and a
	// claim that was under way has ended, or sees them, too; workers are notified
	// (Notice.FlowControl). The counts of a limit that is no longer there may be forgotten.
	SetFlowControl(ctx context.Context, was int64, r *FlowControl) error

	// Usage returns what is counted for the limits that are there, in no order; of those
	// PerLane for each lane. Those whose Counter is idle may be left out.
	Usage(ctx context.Context) ([]Usage, error)

	// CancelRunning has the worker told that has claimed the job (Notice.Canceled), at once
	// and, until the claim ends, with each Heartbeat: so that a message that was lost delays it
	// by that. True: it is claimed, and that is stored. A claim that follows, also of a
	// worker that takes over, is not told. False without an error: it is not claimed. A Ref
	// that is none of this engine's is ErrNotFound. It may be repeated after ErrUncertain.
	CancelRunning(ctx context.Context, ref Ref) (bool, error)

	// Now returns the engine's time, and by how much it may be off in either direction.
	Now(ctx context.Context) (now time.Time, uncertainty time.Duration, err error)

	// Work makes a worker known, so that it may claim. If there is no answer, it asks again
	// until ctx ends.
	Work(ctx context.Context, c WorkConfig) (Worker, error)

	// Close ends the connection, and workers with it as if their process had died. It
	// does not change what is kept. It may be called twice.
	Close() error
}

// WorkConfig is what an engine has to know of a worker.
type WorkConfig struct {
	Name      string        // no other worker has had it, ever
	Kinds     *KindGate     // what Fetch hands out; nil: nothing
	Lease     time.Duration // without a Heartbeat for so long, others may take over its jobs
	Ahead     time.Duration // how long before a job is due Fetch hands it out, at least
	Retention time.Duration // for how long a dead job is kept
	Polled    func()        // Fetch calls it after each look that did not fail, also one that found nothing; nil: not

	// Tell, if not nil, is called while Fetch is under way, and by Heartbeat, when there is
	// something that the worker should know. It does not block. Several goroutines may call
	// it at once. A notice that comes twice, or that is true no longer, is no harm; of
	// FlowControl and Freed some may be lost, since the Queue asks again every second.
	Tell func(Notice)
}

// Unhandled is a kind of which a job is due, and no worker has a handler.
type Unhandled struct {
	Kind   string
	Oldest Ref       // the job of it that is longest due
	Due    time.Time // of that
}

// Worker is one who claims and runs jobs.
//
// A Worker may have a method Linger() (d time.Duration, enough int): the end of an attempt waits for
// others for d, or until enough of them wait, so that they share a call of Finish. Without it this is 5 ms
// and 16. If the process is killed meanwhile, the job runs again.
type Worker interface {
	// Fetch hands out jobs a little before they are due, those that are overdue first,
	// each to one worker, until ctx ends; then it returns nil. It hands out no kind but
	// those of WorkConfig.Kinds that are open, give or take what is on its way. Jobs of
	// other kinds, however many are overdue, make none late, and cost the worker next to
	// nothing. It calls give from several
	// goroutines; give blocks while the worker has as many as it can hold. A job may be
	// handed out again, to the same worker or another; the claim decides. Fetch returns an
	// error where it cannot go on; the Queue calls it again after a while. An error that
	// wraps ErrClosed or ErrVersion says that this is for good, and ends Run.
	Fetch(ctx context.Context, give func([]*Delivery)) error

	// Claim asks for jobs that Fetch has handed out. It never fails: if it cannot tell it
	// answers RetryLater.
	//
	// The engine keeps whether each claim was exact, and with Delivery.Exact not set how many
	// attempts had begun before it. A claim that never ended, because its worker has died
	// or was cut off, counts as an attempt if it was exact, and not if it was not. In
	// either case the job is a suspect from then on: Crashes counts its claims that never
	// ended, since an attempt has ended the last time. A suspect is claimed exactly or not
	// at all. An exact claim of a job that is FreeWhenBegun leaves its key, in the same commit. A
	// worker may claim once more the jobs that it has claimed itself in a call
	// whose answer was lost; that is no other attempt, and no crash.
	//
	// A job that a limit covers, or that is paused (FlowControl.Covering), is claimed exactly or
	// not at all: without Exact the answer is Throttled, with After 0. For a job that is paused
	// it is Throttled, with After RetryInterval and Limit 0. Else the claim takes what Take says of the
	// Counters, by the engine's clock, in the same commit, or is refused. It notes which places
	// it has. Finish, and Release of what is claimed, give exactly these back in their commit,
	// tokens never; workers are told (Notice.Freed), at least if no place was left. A claim
	// that takes over keeps the places that the dead one had, unless they have been freed: after
	// the lease they are, if others wait for them, since nobody may ever take over. So no count can drift, and
	// whoever dies, there are never more places taken than there are. A job that is claimed once
	// more since an answer was lost keeps what it has, and takes nothing. Of a suspect that
	// is not asked exactly, Suspect and Throttled are both right.
	Claim(ctx context.Context, held []*Delivery) []ClaimResult

	// Finish says what became of jobs that are claimed. It is all or nothing for each:
	// the end, the next attempt, the key, the next occurrence. The job is no suspect any
	// more. With Retry a job that has left its key takes that again; if another job has the key by
	// then, it ends as with Done. ErrLeaseLost: another
	// worker has taken over, and nothing was changed. ErrChanged: it is an occurrence (see
	// Record.IsOccurrence) that ends, the revision of its schedule, 0 if there is none, is
	// not that of the Completion, and nothing was changed. On any other error call it again.
	Finish(ctx context.Context, outs []Completion) []error

	// Release gives back what was handed out: whether claimed (then the attempt does not
	// count) or not; a suspect remains one. It is handed out again, after a delay that may
	// be rounded up, but as soon as FlowControl has returned a new revision: a limit may be
	// why it was put off. Jobs that another worker has claimed since remain its own. Failing is
	// no harm: jobs that were not claimed are handed out again in any case, after the
	// lease, and others after Close; until then the Queue calls it again.
	Release(ctx context.Context, held []*Delivery, after time.Duration) error

	// Heartbeat renews the lease on all that the worker has claimed. The Queue calls it three
	// times in a lease, and sometimes more. It returns ErrLeaseLost if the lease was over
	// before it was renewed, so that another worker may have taken jobs over meanwhile:
	// that is what a worker learns by whose clocks stood still. If it returns nil none has,
	// since the call of Heartbeat before that returned nil, or the call of Work. For an error
	// that wraps ErrClosed or ErrVersion see Fetch.
	Heartbeat(ctx context.Context) error

	// Close ends the worker. Others may take over at once the jobs that it still has claimed.
	Close(ctx context.Context) error
}

// Record is a job as an engine stores it.
type Record struct {
	ID string // of letters, digits, - and _; two records with one ID and Born are one job

	// What the job is: for Kind to Expires see Job in package durable.
	Kind        string
	Payload     []byte
	Key         string
	MaxAttempts int // at least 1
	Lane        string
	Priority    int8 // -1 low, 0 normal, 1 high
	Meta        map[string]string
	Timeout     time.Duration // in whole microseconds
	Expires     time.Time
	At          time.Time // when it was first due

	FreeWhenBegun bool
	Signals       bool

	// For Insert alone: see Job. Found, if not nil, is set to the Ref of the job that waited under
	// the key, or to "".
	OnKey   OnKey
	MaxWait time.Duration
	Found   *Ref

	First  time.Time // Born of the first of those that were pushed back, one after another; zero: this is the first
	Signal []byte    // that came; nil: none

	Due  time.Time // of the next attempt
	Born time.Time // when Add was called

	// Version counts the changes of Due, from 0. If there are two Deliveries of one job, that
	// with the higher Version is the newer.
	Version int

	Attempt   int    // attempts that had begun before
	Crashes   int    // claims that never ended, as far as Fetch knows; more than 0: a suspect
	LastError string // of the one before: UTF-8 without NUL

	// Errors is what the Completion of the attempt before has said; nil for Insert. An engine
	// keeps it as it is.
	Errors []Failure

	// Of an occurrence of a schedule: the schedule's name, and the text of which the Queue makes
	// the next one. An engine keeps both as they are.
	Schedule   string
	Occurrence string
}

// Schedule is a schedule as an engine keeps it.
type Schedule struct {
	Name       string
	Definition string    // the text that the Queue made of it; "": deleted
	Revision   int64     // grows with each change
	Last       time.Time // of the last occurrence that has ended; zero: none has
}

// Replace decides which occurrence of a schedule waits after a change. It gets the Last of
// the schedule, and the occurrence that waits and has had no attempt, with its Due and its
// Occurrence at least; nil: there is none. It returns the record that replaces it, or waits itself:
// that stays. Nil: none is to wait. After an error nothing is written.
//
// An engine calls it once it has read both, and commits the result only if neither has
// changed since. So it may call it several times, and with a lock: it must not call the engine.
type Replace func(last time.Time, waits *Record) (*Record, error)

// Delivery is a job that was handed out to a worker.
type Delivery struct {
	Ref    Ref
	Record Record

	// Exact is set by the Queue for Claim: the handler begins as soon as the claim is there,
	// so that the claim counts as an attempt even if it never ends.
	Exact bool

	// Handle is the engine's own: where the job is, and what it was claimed with. The
	// Queue leaves it alone and gives one Delivery to one call of the Worker at a time.
	Handle any
}

// ClaimStatus is an engine's answer to a claim.
type ClaimStatus int

// The answers to a claim.
const (
	RetryLater ClaimStatus = iota // ask again After so long: another worker may have it, or an error
	Granted                       // it is claimed; Attempt is the number of this attempt, from 1
	Gone                          // it has ended or was moved, and the engine has forgotten the Delivery
	Suspect                       // it can only be claimed exactly; nothing was changed
	Throttled                     // a limit or a pause has it wait; ask again After so long, or when told
)

// ClaimResult is an answer to a claim, with what belongs to it.
type ClaimResult struct {
	Status  ClaimStatus
	After   time.Duration // for RetryLater and Throttled
	Attempt int           // for Granted; MaxAttempts and one if the last one never ended
	Crashes int           // for Suspect: how many claims in a row never ended, at least 1
	At      time.Time     // for Granted: when its token comes, before which it must not begin; zero: at once
	Limit   int64         // for Throttled: the ID of the StoredLimit that has refused; 0: a pause, or it was not asked exactly
}

// Completion is what became of a claimed job.
type Completion struct {
	Delivery *Delivery
	End      End
	At       time.Time // for Retry: when it is due next
	Error    string    // for Retry and DeadLetter: UTF-8 without NUL

	// Errors, for Retry and DeadLetter, are the job's from now on, with Error.
	Errors []Failure

	// Uncounted, for Retry and DeadLetter: the attempt does not count, since it was snoozed or
	// has never begun.
	Uncounted bool

	// Of an occurrence, for Done and DeadLetter: the next one, to be stored with the end, under
	// the same key; the revision of the schedule that says so; and what is its Last from now
	// on, if not zero.
	Next     *Record
	Revision int64
	Occurred time.Time
}

// End is how an attempt ended.
type End int

// How an attempt ends.
const (
	Done       End = iota // the job is forgotten
	Retry                 // it waits for another attempt
	DeadLetter            // it is dead
)

// Attempt is an attempt whose handler has not returned yet: an *Attempt of package durable. It is
// for engines that write its end down in a way of their own, such as within a transaction of the
// handler's.
type Attempt interface {
	// Complete has write store the end of the attempt, as done. Write is called with the engine's
	// worker and the end: for an occurrence with the next one. If it returns [ErrChanged] it is
	// called again, with the end by the schedule as it is stored then.
	//
	// Complete may be called again, if what was written before is certainly undone. After the
	// handler has returned it is [ErrLeaseLost]. It panics on an attempt that no worker has made.
	Complete(ctx context.Context, write func(Worker, Completion) error) error
}

// Job is a job that is to be added: a Job of package durable. It is for engines that add jobs in a
// way of their own, such as within a transaction.
type Job interface {
	// Record returns what is to be stored of a job that is added now, by the engine's clock. An
	// error wraps [ErrInvalid].
	Record(now time.Time) (Record, error)
}
