package durable

import (
	"context"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
)

// Handler runs an attempt; see [Queue.Handle].
type Handler func(ctx context.Context, a *Attempt) error

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

// IsSnooze reports whether an error is one of [Snooze] or [Cooldown], or wraps one. A handler that
// returns such an error has not failed. It is for middleware.
func IsSnooze(err error) bool { return attempt.IsSnooze(err) }
