// Package attempt is one attempt at a job: it calls the handler, and makes a Completion of
// the handler's error.
package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/valid"
)

// Attempt is one attempt. Its fields must not be changed once the handler is called.
type Attempt struct {
	Delivery   *driver.Delivery // not to be changed
	Number     int              // of this attempt, from 1
	Occurrence time.Time        // of a schedule: the time by it; else zero
	Began      time.Time        // by the engine's clock

	Engine driver.Worker // for Complete, as Times
	Times  *recur.Calendar

	mu       sync.Mutex
	own      *driver.Completion // that the handler has written last by Complete; nil: it has written none
	returned bool               // the handler has
	fine     bool               // and its error is nil
}

// Handler runs an attempt.
type Handler func(ctx context.Context, a *Attempt) error

// errGoexit is the failure of a handler that ended its goroutine.
var errGoexit = errors.New("durable: the handler called runtime.Goexit")

// Call runs the handler and passes its error on, once, however it ends. Deferred, since
// plain code is not reached after runtime.Goexit.
func (a *Attempt) Call(ctx context.Context, h Handler, ended func(error)) {
	err := errGoexit
	defer func() {
		defer func() { ended(err) }() // also if the methods of what it panics with do not return
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	err = h(ctx, a)
}

// maxErrorText is how much of a handler's error is kept.
const maxErrorText = 4 << 10

// Undecided returns the Completion of a job whose handler has failed, for the case that Decide
// does not return.
func (a *Attempt) Undecided(err error, now time.Time) driver.Completion {
	out := driver.Completion{Delivery: a.Delivery, End: driver.Retry, Began: a.Began, At: clip(now.Add(Backoff(a.Number)))}
	out.Error = fmt.Sprintf("durable: the handler has returned a %T, whose methods do not return", err)
	if a.Number >= a.Delivery.Record.MaxAttempts {
		out.End = driver.DeadLetter
	}
	return out
}

// Decide finishes the Completion of a job whose handler has failed. The methods of err and
// the backoff are the user's: if they panic, the Completion's Error describes the panic, and what
// Discard, RetryAfter, Snooze or Cooldown ask for is done all the same. Decide returns the cooldown, 0 if there
// is none.
func (a *Attempt) Decide(out *driver.Completion, err error, now time.Time, backoff func(attempt int) time.Duration) time.Duration {
	after, snooze, cool := judge(out, err)
	switch {
	case cool != nil:
		out.End, out.Uncounted, out.At = driver.Retry, true, clip(now.Add(cool.after))
		return cool.after
	case snooze != nil:
		out.End, out.Uncounted, out.Error = driver.Retry, true, out.Delivery.Record.LastError
		out.At = clip(now.Add(snooze.after))
	case out.End == driver.DeadLetter:
	case after != nil:
		out.At = clip(now.Add(after.after))
	default:
		if failed := protect(func() { out.At = clip(now.Add(max(0, backoff(a.Number)))) }); failed != nil {
			out.Error = errorText(fmt.Errorf("%s; durable: the backoff function panicked: %w", out.Error, failed))
		}
	}
	return 0
}

// judge sets the text of a handler's error, and returns what the error asks for. Each look at the
// error is by itself: one that panics, as of a nil pointer, takes nothing from the others.
func judge(out *driver.Completion, err error) (after *retryLater, snooze *snoozed, cool *cooled) {
	var failed error
	look := func(f func()) { failed = cmp.Or(protect(f), failed) }
	look(func() { out.Error = errorText(err) })
	look(func() { errors.As(err, &snooze) })
	look(func() { errors.As(err, &cool) })
	look(func() {
		if errors.As(err, new(*discarded)) {
			out.End = driver.DeadLetter
		}
	})
	look(func() { errors.As(err, &after) })
	if failed != nil {
		out.Error = errorText(fmt.Errorf("durable: the handler returned a %T whose methods panic: %w", err, failed))
	}
	return after, snooze, cool
}

// protect calls a function of the user's. It returns a panic as an error.
func protect(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicError(v)
		}
	}()
	f()
	return nil
}

// panicError describes a panic of the user's code. Package fmt takes a panic of the value's methods,
// but not one of the methods of what these panic with.
func panicError(v any) error {
	text := fmt.Sprintf("a %T, whose methods panic", v)
	func() {
		defer func() { _ = recover() }()
		text = fmt.Sprint(v)
	}()
	return fmt.Errorf("panic: %s\n\n%s", text, debug.Stack())
}

func clip(t time.Time) time.Time {
	if t = clock.WholeMicros(t); t.Before(valid.Farthest) {
		return t
	}
	return valid.Farthest.Add(-time.Microsecond)
}

// errorText returns the stored text of an error. A database refuses NUL, and bytes that are
// not UTF-8, and the end of an attempt must not fail because of its error's text.
func errorText(err error) string {
	s := err.Error()
	s = s[:min(len(s), maxErrorText)]
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// The bounds of the earlier errors that are kept. A record stays small however often its job fails.
const (
	maxFailures    = 10
	maxFailureText = 512
)

// Note adds the error of an attempt that has failed, or was snoozed, at a time to those of its job.
func Note(o *driver.Completion, attempt int, now time.Time) {
	r := &o.Delivery.Record
	o.Errors = r.Errors
	if o.Uncounted && o.End == driver.Retry { // snoozed
		return
	}
	f := driver.Failure{At: clock.WholeMicros(now).UTC(), Attempt: min(attempt, r.MaxAttempts), Error: failureText(o.Error)}
	if o.Uncounted {
		f.Attempt = 0 // it has expired
	}
	o.Errors = append(slices.Clone(r.Errors[max(0, len(r.Errors)-maxFailures+1):]), f)
}

func failureText(s string) string {
	s, _, _ = strings.Cut(s, "\n\n") // without the stack of a panic
	return strings.ToValidUTF8(s[:min(len(s), maxFailureText)], "")
}
