package attempt

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
)

// An engine may have a handler write the end of its attempt down by itself, in a
// transaction of the handler's: then what the handler has done and the end of the job are
// committed together, or not at all. Whether they are only the transaction knows. So once
// an end was written in one, what the handler returns is written down as the end of an
// attempt that has failed. If the transaction was committed nothing is left that this
// could be the end of; while it is open the engine has it wait.

// errNotCommitted is the failure of a handler that has returned nil, and has not committed.
var errNotCommitted = errors.New("durable: the handler has returned nil, but the transaction in which it completed its attempt was not committed")

// Complete is that of [driver.Attempt].
func (a *Attempt) Complete(ctx context.Context, write func(driver.Worker, driver.Completion) error) error {
	out := driver.Completion{Delivery: a.Delivery, End: driver.Done}
	a.Times.Follow(&out, a.Began)
	err := driver.ErrChanged
	for range recur.Tries {
		if a.hasReturned() {
			return fmt.Errorf("%w: the handler has returned", driver.ErrLeaseLost)
		}
		if err = write(a.Engine, out); !errors.Is(err, driver.ErrChanged) {
			break
		}
		if err := a.Times.FollowAgain(ctx, &out, a.Began); err != nil {
			return err
		}
	}
	if err == nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.returned {
			a.own = &out
		}
	}
	return err
}

func (a *Attempt) hasReturned() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.returned
}

// Returned notes that the handler has returned err, and returns what that comes to.
func (a *Attempt) Returned(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.returned, a.fine = true, err == nil
	if a.own != nil && a.fine {
		err = errNotCommitted // if it was, the end that this makes comes too late
	}
	return err
}

// Own returns what the handler has written down by itself, and whether it has returned nil. It is
// to be called after Returned; nil: nothing was written.
func (a *Attempt) Own() (out *driver.Completion, fine bool) { return a.own, a.fine }
