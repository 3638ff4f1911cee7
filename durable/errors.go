package durable

import (
	"errors"
	"fmt"
	"time"
)

// Errors to test for with errors.Is.
var (
	// ErrInvalid: the job, the key, the time or the Ref is not one that there can be.
	// The message says what is wrong. Nothing was written.
	ErrInvalid = errors.New("durable: invalid")

	// ErrExists: another job has the key.
	ErrExists = errors.New("durable: key exists")

	// ErrNotFound: no job has this Ref, or this key; it may have ended long ago.
	ErrNotFound = errors.New("durable: not found")

	// ErrLeaseLost: the worker was not heard of for longer than its lease, and another
	// one may have the job. It is the cause of a handler's context when it ends for this.
	ErrLeaseLost = errors.New("durable: lease lost")

	// ErrUncertain: the engine's answer was lost. What was asked for may have been done.
	ErrUncertain = errors.New("durable: outcome uncertain")

	// ErrFull: the store has no room. It goes on once there is some.
	ErrFull = errors.New("durable: store is full")

	// ErrStorage: the store is damaged, or cannot be written.
	ErrStorage = errors.New("durable: storage failed")

	// ErrLocked: another process has the directory open.
	ErrLocked = errors.New("durable: store is locked by another process")

	// ErrClosed: the Queue or the Engine is closed.
	ErrClosed = errors.New("durable: closed")
)

// discarded and later are what Discard and RetryAfter wrap a handler's error in.
type discarded struct{ err error }

type retryLater struct {
	err   error
	after time.Duration
}

func (e *discarded) Error() string  { return e.err.Error() }
func (e *discarded) Unwrap() error  { return e.err }
func (e *retryLater) Error() string { return e.err.Error() }
func (e *retryLater) Unwrap() error { return e.err }

// Discard returns an error for a handler to return when trying again is of no use: the
// job is dead at once. It panics on a nil error.
func Discard(err error) error {
	if err == nil {
		panic("durable: Discard(nil)")
	}
	return &discarded{err}
}

// RetryAfter returns an error for a handler to return that sets when the next attempt is:
// d from now rather than after the backoff. Attempts count all the same. It panics on a
// nil error. A d that is not positive is now.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		panic(fmt.Sprintf("durable: RetryAfter(%v, nil)", d))
	}
	return &retryLater{err: err, after: max(d, 0)}
}
