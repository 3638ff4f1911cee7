package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// ErrStopped is the error of calls after [TimingWheel.Stop] or [TimingWheel.Shutdown]. It
// is also the error of the jobs and futures that these ended.
var ErrStopped = engine.ErrStopped

// ErrTooManyPending is returned when as many functions are pending as [WithMaxPending]
// permits, or two billion on one shard.
var ErrTooManyPending = engine.ErrTooManyPending

// ErrCanceled is the error of a [Job] that its Stop ended, and of a [Future] that its
// Cancel ended. It wraps context.Canceled: errors.Is(ErrCanceled, context.Canceled) is
// true.
var ErrCanceled error = canceledError{}

// ErrDiscarded is the error of a [Future] whose function a full pool.Pool has discarded.
var ErrDiscarded = errors.New("timingwheel: discarded")

type canceledError struct{}

func (canceledError) Error() string { return "timingwheel: canceled" }
func (canceledError) Unwrap() error { return context.Canceled }

var (
	errGoexit   = errors.New("timingwheel: the function ended its goroutine")
	errNotLater = errors.New("the Scheduler does not advance")
)

// PanicError is the error that a panic becomes: that of [Job.Err] and of [Future.Wait].
// Use errors.As to find it.
type PanicError struct {
	Value any    // The value that recover returned.
	Stack []byte // The stack of the goroutine, as debug.Stack formats it.
}

// Error returns one line, the first of Value, without the stack.
func (e *PanicError) Error() string {
	line, _, _ := strings.Cut(fmt.Sprint(e.Value), "\n")
	return "timingwheel: panic: " + line
}

// Unwrap returns Value if that is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// newPanicError returns the error for what recover has returned, and nil for nil. The
// caller calls it while the stack is still that of the panic.
func newPanicError(recovered any) *PanicError {
	if recovered == nil {
		return nil
	}
	return &PanicError{recovered, debug.Stack()}
}
