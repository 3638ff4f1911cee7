package attempt

import (
	"errors"
	"fmt"
	"time"
)

// discarded, retryLater and cooled are what Discard, RetryAfter and Cooldown wrap a handler's error in; snoozed is what
// Snooze returns.
type discarded struct{ err error }

type retryLater struct {
	err   error
	after time.Duration
}

type snoozed struct{ after time.Duration }

type cooled struct {
	err   error
	after time.Duration
}

func (e *snoozed) Error() string    { return fmt.Sprintf("durable: snoozed for %v", e.after) }
func (e *discarded) Error() string  { return e.err.Error() }
func (e *discarded) Unwrap() error  { return e.err }
func (e *cooled) Error() string     { return e.err.Error() }
func (e *cooled) Unwrap() error     { return e.err }
func (e *retryLater) Error() string { return e.err.Error() }
func (e *retryLater) Unwrap() error { return e.err }

// Discard is Discard of package durable, as all of these: whose errors are these.
func Discard(err error) error { return &discarded{err: err} }

// RetryAfter is that of package durable.
func RetryAfter(d time.Duration, err error) error { return &retryLater{err: err, after: max(d, 0)} }

// Snooze is that of package durable.
func Snooze(d time.Duration) error { return &snoozed{after: max(d, 0)} }

// Cooldown is that of package durable.
func Cooldown(d time.Duration, err error) error { return &cooled{err: err, after: max(d, 0)} }

// Cools returns for how long an error asks for a cooldown, and its text; 0 if it does not. An error whose methods panic asks for none.
func Cools(err error) (after time.Duration, reason string) {
	_ = protect(func() {
		if c, is := errors.AsType[*cooled](err); is {
			after, reason = c.after, errorText(err)
		}
	})
	return after, reason
}

// IsSnooze is that of package durable. It is false for an error whose methods panic.
func IsSnooze(err error) (is bool) {
	_ = protect(func() { is = errors.As(err, new(*snoozed)) || errors.As(err, new(*cooled)) })
	return is
}
