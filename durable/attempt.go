package durable

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
)

// Handler runs an attempt; see [Queue.Handle].
type Handler func(ctx context.Context, a *Attempt) error

// Attempt describes one attempt to its handler. The Payload, Meta and Signal are copies: what
// the handler writes there is not stored.
type Attempt struct {
	Ref    Ref
	Job    Job       // At is when it was first due; After is zero.
	Number int       // The number of this attempt, from 1.
	Due    time.Time // The due time of this attempt.

	// Signaled reports whether a signal came, and Signal is its payload; see
	// [Queue.Signal].
	Signaled bool
	Signal   []byte

	// For an occurrence: the name of its schedule, and its time by the schedule, which is
	// earlier than the job's time with a Jitter, or if it was missed.
	Schedule   string
	Occurrence time.Time

	attempt *attempt.Attempt // for Complete
}

// attemptOf returns what a handler gets: all that it may write into is its own, since the record is
// stored again with the next attempt, as a dead job, or as the next occurrence.
func attemptOf(a *attempt.Attempt) *Attempt {
	r := &a.Delivery.Record
	made := &Attempt{
		Ref: a.Delivery.Ref, Job: jobOf(r), Number: a.Number, Due: r.Due,
		Signaled: r.Signal != nil, Signal: bytes.Clone(r.Signal), attempt: a,
	}
	made.Job.Payload, made.Job.Meta = bytes.Clone(r.Payload), maps.Clone(r.Meta)
	if !a.Occurrence.IsZero() {
		made.Schedule, made.Occurrence = r.Schedule, a.Occurrence
	}
	return made
}

// Complete stores the end of the attempt, as done, through write, before its handler has
// returned. It is for engines that store it in their own way, such as within a
// transaction of the handler: see [driver.Attempt]. A handler calls the method of its
// engine instead. It panics on an Attempt that no handler was called with.
func (a *Attempt) Complete(ctx context.Context, write func(driver.Worker, driver.Completion) error) error {
	if a.attempt == nil {
		panic("durable: Complete: the Attempt is not one that a handler received")
	}
	return a.attempt.Complete(ctx, write)
}

// Discard wraps an error that a handler returns when another attempt would be of no use.
// The job is dead at once. Discard panics on a nil error.
func Discard(err error) error {
	if err == nil {
		panic("durable: Discard(nil)")
	}
	return attempt.Discard(err)
}

// RetryAfter wraps an error that a handler returns to set when the next attempt is due: d
// from now, and not after the backoff. If d is not positive, that is now. The attempt
// counts all the same. RetryAfter panics on a nil error.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		panic(fmt.Sprintf("durable: RetryAfter(%v, nil)", d))
	}
	return attempt.RetryAfter(d, err)
}

// Snooze returns an error for a handler whose job is too early: another attempt is due d
// from now, and this one does not count. If d is not positive, that is now. The job has
// not failed: its last error stays what it was. A job may be snoozed any number of times.
func Snooze(d time.Duration) error { return attempt.Snooze(d) }

// IsSnooze reports whether an error is one of [Snooze], or wraps one. A handler that
// returns such an error has not failed. It is for middleware.
func IsSnooze(err error) bool { return attempt.IsSnooze(err) }
