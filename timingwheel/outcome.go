package timingwheel

import (
	"context"
	"reflect"
	"time"
)

// outcome says how a context has ended, or how it ends when its deadline comes.
type outcome struct {
	err   error // nil: the context has not ended
	cause error // nil: err itself
}

// The outcomes that need no allocation.
var (
	canceled = &outcome{err: context.Canceled}
	exceeded = &outcome{err: context.DeadlineExceeded}
	cutShort = &outcome{context.Canceled, ErrStopped} // a manual clock has ended before the deadline
)

// atDeadline returns the outcome at the deadline of a context with the outcome o, which
// may be nil.
func (o *outcome) atDeadline() *outcome {
	if o == nil {
		return exceeded
	}
	return &outcome{context.DeadlineExceeded, o.cause}
}

// outcomeOf returns the outcome of a context that ends because its parent has ended.
func outcomeOf(parent context.Context) *outcome {
	// The errors are compared to those of package context only: two of a user's may be of
	// a type that cannot be compared.
	switch err, cause := parent.Err(), context.Cause(parent); {
	case err == nil: // not for any parent of package context
		return canceled
	case err == context.Canceled && cause == context.Canceled:
		return canceled
	case err == context.DeadlineExceeded && cause == context.DeadlineExceeded:
		return exceeded
	default:
		return &outcome{err, cause}
	}
}

// isFinal reports whether the context has ended.
func (o *outcome) isFinal() bool { return o != nil && o.err != nil }

// causeHolder returns a context of package context that has ended with the cause. It
// returns nil if the context has not ended, or has no cause but the error.
func (o *outcome) causeHolder() any {
	if !o.isFinal() || o.cause == nil {
		return nil
	}
	c, cancel := context.WithCancelCause(context.Background())
	cancel(o.cause)
	return c
}

// doneOnly is the end of a context of which only the channel is known to stay the same.
type doneOnly <-chan struct{}

func (done doneOnly) Deadline() (at time.Time, ok bool) { return at, false }
func (done doneOnly) Done() <-chan struct{}             { return done }
func (done doneOnly) Value(any) any                     { return nil }

func (done doneOnly) Err() error {
	if isClosed(done) {
		return context.Canceled
	}
	return nil
}

// cancelCtxType is the type of a context of package context that a function ends.
var cancelCtxType = func() reflect.Type {
	c, cancel := context.WithCancel(context.Background())
	cancel()
	return reflect.TypeOf(c)
}()

// packageKey is the key by which package context looks for one of its own, with Value. It
// is private there, but package context asks every context for it, ours too.
var packageKey = func() any {
	asked := &keyCatcher{Context: context.Background()}
	context.Cause(asked)
	return asked.key
}()

// keyCatcher is a context that has ended. Otherwise Cause would not ask it for the key.
type keyCatcher struct {
	context.Context
	key any
}

func (c *keyCatcher) Err() error { return context.Canceled }

func (c *keyCatcher) Value(key any) any {
	c.key = key
	return nil
}
