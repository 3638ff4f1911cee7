package driver

import "time"

// Delivery is a job that was handed out to a worker.
type Delivery struct {
	Ref    Ref
	Record Record

	// The Queue sets Exact for Claim if the handler begins as soon as the claim is
	// stored, so that the claim counts as an attempt even if it never ends.
	Exact bool

	// Claim belongs to the engine: the location of the job, and data of its claim. The
	// Queue does not change it, and passes a Delivery to one call of the Worker at a
	// time.
	Claim any
}

// ClaimStatus is an engine's answer to a claim.
type ClaimStatus int

// The answers to a claim.
const (
	RetryLater ClaimStatus = iota // Claim again After so long: another worker may have it.
	Granted                       // The job is claimed; Attempt is the number of this attempt, from 1.
	Gone                          // It has ended or was moved; the Delivery is forgotten.
	Suspect                       // The job can only be claimed exactly; nothing was changed.
	Throttled                     // A limit or pause: claim again After so long, or when notified.
)

// ClaimResult is an answer to a claim.
type ClaimResult struct {
	Status  ClaimStatus
	After   time.Duration // For RetryLater and Throttled.
	Attempt int           // For Granted. MaxAttempts and one if the last attempt never ended.
	Crashes int           // For Suspect: the number of claims in a row that never ended, at least 1.
	At      time.Time     // For Granted: the time of its token, before which it must not begin; zero for now.
	Limit   int64         // For Throttled: the ID of the StoredLimit; 0 for a pause.
}

// Completion is the end of an attempt of a claimed job.
type Completion struct {
	Delivery *Delivery
	End      End
	At       time.Time // For Retry: the next due time.
	Error    string    // The error of the attempt, UTF-8 without NUL; for Done that of an attempt before.
	Began    time.Time // When the attempt began; zero if it has not.
	Canceled bool      // For Done: the job was canceled while it ran.

	// Errors replaces Record.Errors; it includes Error. For Done it matters only with a Retain.
	Errors []Failure

	// Uncounted, for Retry and DeadLetter: the attempt does not count, since it was snoozed or
	// has never begun.
	Uncounted bool

	// For Done and DeadLetter of an occurrence: the next one, stored with the end, under
	// the same key; the revision of the schedule from which it comes; and the schedule's
	// new Last, if not zero.
	Next     *Record
	Revision int64
	Occurred time.Time
}

// DoneWith returns the end of a job that is done, with the errors of earlier attempts. began is zero if no attempt
// began.
func DoneWith(d *Delivery, began time.Time) Completion {
	return Completion{Delivery: d, End: Done, Began: began, Error: d.Record.LastError, Errors: d.Record.Errors}
}

// Ending returns the Ending that the engine stores if the job ends now, by the engine's clock; nil without a Retain. The
// worker is the one that stores it. A Retry ends the job only if a newer job of its key supersedes it.
func (o *Completion) Ending(worker string, now time.Time) *Ending {
	if o.Delivery.Record.Retain == 0 {
		return nil
	}
	e := &Ending{State: StateDone, Began: o.Began.UTC(), Ended: later(o.Began, now).UTC(), Worker: worker}
	switch {
	case o.End == DeadLetter:
		e.State = Dead
	case o.Canceled:
		e.State = StateCanceled
	}
	return e
}

// End is how an attempt ended.
type End int

// How an attempt ends.
const (
	Done       End = iota // The job has ended. Only its Retain keeps it.
	Retry                 // It waits for another attempt.
	DeadLetter            // It is dead.
)
