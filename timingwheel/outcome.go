package timingwheel

import "context"

// outcome says how a context has ended.
type outcome struct {
	err   error
	cause error // nil: err itself
}

// The outcomes that need no allocation. overdue is not yet an outcome: the deadline has
// come, and a goroutine that ends the context is on its way.
var (
	canceled = &outcome{err: context.Canceled}
	exceeded = &outcome{err: context.DeadlineExceeded}
	overdue  = new(outcome)
	cutShort = &outcome{context.Canceled, ErrStopped} // a manual clock has ended before the deadline
)

// exceededBecause returns the outcome of a deadline with a cause, which may be nil.
func exceededBecause(cause error) *outcome {
	if cause == nil {
		return exceeded
	}
	return &outcome{context.DeadlineExceeded, cause}
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

// isFinal reports whether o is an outcome, rather than nil or overdue.
func (o *outcome) isFinal() bool { return o != nil && o != overdue }

// causeHolder returns a context of package context that has ended with the cause. It returns
// nil if there is no outcome, or no cause but the error.
func (o *outcome) causeHolder() any {
	if o == nil || o.cause == nil {
		return nil
	}
	c, cancel := context.WithCancelCause(context.Background())
	cancel(o.cause)
	return c
}

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
