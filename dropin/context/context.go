// Package context is the package context of the standard library with its deadlines on
// the wheel of the process, [timingwheel.Default]. It has all of that package's names. So
// a program puts its deadlines on a wheel by a change of one import:
//
//	import "github.com/tickwheel/tickwheel/dropin/context"
//
// WithTimeout and WithDeadline and those with a cause are on the wheel. All else is the
// standard library's own: the types and the errors are the same ones, so a context of
// either package is one of the other.
//
// The README of folder dropin says what differs, when it pays, and when not.
package context

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// WithTimeout is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.WithTimeout].
func WithTimeout(parent Context, timeout time.Duration) (Context, CancelFunc) {
	return timingwheel.Default().WithTimeout(parent, timeout)
}

// WithTimeoutCause is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.WithTimeoutCause].
func WithTimeoutCause(parent Context, timeout time.Duration, cause error) (Context, CancelFunc) {
	return timingwheel.Default().WithTimeoutCause(parent, timeout, cause)
}

// WithDeadline is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.WithDeadline].
func WithDeadline(parent Context, d time.Time) (Context, CancelFunc) {
	return timingwheel.Default().WithDeadline(parent, d)
}

// WithDeadlineCause is that of the standard library, on the wheel: see
// [timingwheel.TimingWheel.WithDeadlineCause].
func WithDeadlineCause(parent Context, d time.Time, cause error) (Context, CancelFunc) {
	return timingwheel.Default().WithDeadlineCause(parent, d, cause)
}

// The types of the standard library.
type (
	Context         = context.Context
	CancelFunc      = context.CancelFunc
	CancelCauseFunc = context.CancelCauseFunc
)

// The errors of the standard library.
var (
	Canceled         = context.Canceled
	DeadlineExceeded = context.DeadlineExceeded
)

// Background is that of the standard library.
func Background() Context { return context.Background() }

// TODO is that of the standard library.
func TODO() Context { return context.TODO() }

// WithCancel is that of the standard library.
func WithCancel(parent Context) (ctx Context, cancel CancelFunc) { return context.WithCancel(parent) }

// WithCancelCause is that of the standard library.
func WithCancelCause(parent Context) (ctx Context, cancel CancelCauseFunc) {
	return context.WithCancelCause(parent)
}

// WithoutCancel is that of the standard library.
func WithoutCancel(parent Context) Context { return context.WithoutCancel(parent) }

// WithValue is that of the standard library.
func WithValue(parent Context, key, val any) Context { return context.WithValue(parent, key, val) }

// AfterFunc is that of the standard library.
func AfterFunc(ctx Context, f func()) (stop func() bool) { return context.AfterFunc(ctx, f) }

// Cause is that of the standard library.
func Cause(c Context) error { return context.Cause(c) }
