package driver

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"
)

// Job describes a job to add: its work and its time. The zero values of all fields but
// Kind are useful.
type Job struct {
	Kind    string // Selects the handler; printable, 1 to 128 bytes.
	Payload []byte // For the handler; at most 256 KiB.

	// The due time: At, or After from now, by the engine's clock. Set at most one of
	// them. A time that has passed, or a delay that is not positive, is due now. A time
	// beyond the year 9999 is refused.
	At    time.Time
	After time.Duration

	// Key, if not empty, is held by one job at a time: from Add until that job is done,
	// canceled or dead, or, with FreeWhenBegun, until its attempt begins. OnKey decides
	// about another job with the key. At most 256 bytes, printable.
	Key string

	// OnKey decides about a job that waits under the key; see [OnKey]. Add returns
	// [ErrExists] if the job that has the key has been claimed. The default is Refuse.
	OnKey OnKey

	// MaxWait, with Later, is the longest time from the first Add until the job is due,
	// however often it is pushed back; 0 means no bound. From then on the job is not pushed back,
	// whatever the rate of Adds: see [OnKey]. A job that waits for a retry counts
	// as added when that is due. Whole microseconds, rounded up. The
	// word is that of the debounce of JavaScript's lodash.
	MaxWait time.Duration

	// Found, if not nil, is set by Add to the Ref of the job that waited under the key,
	// and to "" without one. If that job was due, Add returns the same Ref. Give each job its own Found. If Add repeats a lost answer
	// itself, Found may be "" although a job waited. It is a field, since otherwise Add,
	// AddMany, AddTx and each AddFunc would return it for the few jobs that need it.
	Found *Ref

	// FreeWhenBegun frees the key when an attempt begins, so that a job added meanwhile
	// waits under the key, as another job. Both may run at one time; a Limit PerLane with
	// Running 1 makes the second wait for the first. After an attempt that
	// failed, or that WithGrace cut off, the job takes the key again and waits for its
	// next attempt. If a newer job of the key was added since, that supersedes this one,
	// which ends as if it were done, even if the newer one has begun or ended. The same
	// holds when another worker takes over a job whose process died. So an older value
	// does not begin again after a newer one. A newer job that was canceled before it
	// began supersedes none.
	//
	// The job is claimed when it begins, not 75 to 300 ms before it is due. Until then it
	// can be canceled and replaced. It begins later by a commit.
	FreeWhenBegun bool

	// Signals allows a signal: see Signal of a Queue. The job is claimed as with
	// FreeWhenBegun. A job that replaces one which has a signal takes the signal, if it
	// has Signals too, and is due as soon as the other was.
	Signals bool

	// MaxAttempts is the largest number of attempts; the failure of the last makes the
	// job dead. 0 means 25. An attempt whose process died before its begin was known does
	// not count, except the last one.
	MaxAttempts int

	// Lane is the owner of the job, such as a customer. Limits, pauses and filters can
	// select a lane. At most 128 bytes, printable.
	Lane string

	// Priority orders the jobs that are due; see [Priority].
	Priority Priority

	// Meta is kept with the job, such as the context of a trace, or tags to search for
	// with a [Filter]. Names are printable, 1 to 128 bytes; values are UTF-8 without NUL;
	// all together at most 4 KiB.
	Meta map[string]string

	// Timeout, if positive, is how long an attempt may take: then its handler's context
	// ends with [ErrTimeout] as cause. The handler's result counts, as always. Whole
	// microseconds, rounded up.
	Timeout time.Duration

	// Expires, if not zero, is until when an attempt may begin, by the engine's clock. No
	// attempt begins from then on: the job is dead, with [ErrExpired] as its error. The
	// end is stored when the job's turn comes, so a listing may show it as waiting for
	// longer. It leaves its key when it expires: Add accepts another job, and no signal reaches
	// it. Expires must be after the due time. Redrive clears Expires.
	Expires time.Time

	// Retain, if positive, is how long the job is kept after it is done, canceled or dead.
	// Meanwhile Get, List and All return it, with the errors of its attempts, its last worker, and the
	// times when its last attempt began and the job ended. A dead job is kept for Retain or the
	// time of WithRetention, whichever is longer. The end frees the key all the same. A job that
	// another one replaced under its key is not kept, nor is an occurrence that a change of its
	// schedule replaced. A kept job takes room in the store. Whole microseconds, rounded up; at most a
	// hundred years. The default, 0, keeps nothing and costs nothing.
	Retain time.Duration

	// RetainPayload keeps the payload, too. Without it only a dead job keeps its payload, which
	// Redrive needs. RetainPayload without Retain is refused.
	RetainPayload bool

	schedule string // see OfSchedule
}

// OfSchedule returns the job of a schedule that is added beside its occurrences. [NewRecord]
// sets Record.Schedule, also if a middleware has changed the job. It is for the Queue.
func OfSchedule(j Job, name string) Job {
	j.schedule = name
	return j
}

// OnKey is the action of Add if a job waits under the key of the new one.
//
// A job that is due is not replaced and not pushed back, since its turn has come: the new job
// goes into it. It then has all fields of the new job but the due time, and no attempts; it
// keeps its Ref, which Add returns, its time and its signal. So it runs with the value that
// was added last before it began, and soon, however often others add to its key. To give a due job a
// later time, call Reschedule.
//
// Each change makes a claim that is under way fail. So after the first one Add waits until the
// job begins, for at most a second if no worker has a slot for it. Then its key is free with FreeWhenBegun, and
// otherwise Add returns [ErrExists].
//
// A job that is not due has no bound without MaxWait: if each Add comes before the job of the
// Add before is due, none of them runs.
type OnKey int8

// The actions of Add. KeyReplace and KeyLater end the waiting job, unless it is due, as Cancel
// does, and store the new one in the same commit. So if they overlap with a claim, one wins, and
// the Ref is that of the new job. Package durable has them without the word Key.
const (
	KeyRefuse  OnKey = iota // Add returns ErrExists.
	KeyReplace              // The new job replaces the other, or goes into it if that is due.
	KeyLater                // The same, due no later than MaxWait after the first Add: a debounce.
	KeyKeep                 // The other stays, and Add returns its Ref: a throttle.
)

// Priority is one of three classes. A worker begins the due jobs that it has fetched by
// class, the highest first, and within a class those that have been due for longest. One
// begin in eight is of a lower class, if such a job is due, and one in 64 of the lowest,
// so that no class starves.
//
// A worker has fetched up to 65,536 jobs, those that have been due for longest. While more
// than that are overdue, their class does not matter.
type Priority int8

// The classes.
const (
	Low    Priority = -1
	Normal Priority = 0
	High   Priority = 1
)

// String returns "low", "normal" or "high"; for other values "Priority(2)" and the like.
func (p Priority) String() string {
	switch p {
	case Low:
		return "low"
	case Normal:
		return "normal"
	case High:
		return "high"
	}
	return fmt.Sprintf("Priority(%d)", int8(p))
}

// Info describes a job that is kept.
type Info struct {
	Ref       Ref
	Job       Job // At is when it was first due; After, OnKey, MaxWait and Found are zero.
	State     State
	Attempt   int       // Attempts that have begun, including the claimed one.
	Due       time.Time // The time of the next attempt, of the running one, or of the last.
	Worker    string    // The worker that has claimed a running job, or has stored the end of one that Retain keeps; empty for others.
	LastError string    // The error of the last failed attempt; at most 4 KiB.

	// Errors are those of the last ten attempts that failed, the newest last. They
	// include an attempt whose process died only if it was the last one, and the expiry
	// of a job. Redrive keeps them.
	Errors []Failure

	// Began is when the last attempt began, and End is when the job ended, by the engine's clock.
	// Both are set only after the end of a job with a Retain. Began is zero then if no attempt has begun.
	Began, End time.Time
}

// Ended reports whether the job has ended: it is dead, done or canceled.
func (i Info) Ended() bool { return i.State.Ended() }

// Attempt describes one attempt to its handler. The Payload, Meta and Signal are copies: what
// the handler writes there is not stored.
type Attempt struct {
	Ref    Ref
	Job    Job       // At is when it was first due; After, OnKey, MaxWait and Found are zero.
	Number int       // The number of this attempt, from 1.
	Due    time.Time // The due time of this attempt.

	// Signaled reports whether a signal came, and Signal is its payload; see Signal of a
	// Queue.
	Signaled bool
	Signal   []byte

	// Schedule is the name of the schedule of an occurrence, or of a job that RunNow has added.
	// Occurrence is the time of an occurrence by the schedule, which is earlier than the job's
	// time with a Jitter, or if it was missed. It is zero for a job of RunNow.
	Schedule   string
	Occurrence time.Time

	complete func(context.Context, func(Worker, Completion) error) error
}

// NewAttempt returns the Attempt of a Delivery, for its handler. Complete calls complete.
func NewAttempt(d *Delivery, number int, occurrence time.Time, complete func(context.Context, func(Worker, Completion) error) error) *Attempt {
	r := &d.Record
	a := &Attempt{
		Ref: d.Ref, Job: r.kept(), Number: number, Due: r.Due, Signaled: r.Signal != nil, Signal: bytes.Clone(r.Signal),
		Schedule: r.Schedule, Occurrence: occurrence, complete: complete,
	}
	// The record is stored again, with the next attempt, as a dead job, or as the next occurrence.
	a.Job.Payload, a.Job.Meta = bytes.Clone(r.Payload), maps.Clone(r.Meta)
	return a
}

// Complete stores the end of an attempt, as done, through write, before its handler has
// returned. It is for engines that store the end in their own way, such as within a
// transaction of the handler. It calls write with the engine's worker and the end, which for
// an occurrence includes the next one. If write returns [ErrChanged], Complete reads the
// schedule and calls write again.
//
// Complete may be called again if the earlier write was certainly undone. After the handler
// has returned it returns [ErrLeaseLost]. It panics on an attempt that no worker has made.
func Complete(ctx context.Context, a *Attempt, write func(Worker, Completion) error) error {
	if a.complete == nil {
		panic("durable: Complete: the Attempt is not one that a handler received")
	}
	return a.complete(ctx, write)
}
