package attempt

import (
	"context"
	"errors"
	"fmt"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
)

// An engine may let a handler store the end of its attempt itself, in a transaction of the
// handler's, so that the handler's work and the end of the job are committed together, or
// not at all. Only the transaction knows whether it was committed. So after such an end,
// the handler's result is stored as the end of a failed attempt. If the transaction was
// committed, that end finds no claim and changes nothing; while the transaction is open, the
// end waits in the engine.

// errNotCommitted is the failure of a handler that has returned nil, and has not committed.
var errNotCommitted = errors.New("durable: the handler returned nil, but did not commit the transaction that completed its attempt")

// Complete is [driver.Complete] of the attempt.
func (a *Attempt) Complete(ctx context.Context, write func(driver.Worker, driver.Completion) error) error {
	out := driver.DoneWith(a.Delivery, a.Began)
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

// Returned notes that the handler has returned err, and returns the error of the attempt.
func (a *Attempt) Returned(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.returned, a.fine = true, err == nil
	if a.own != nil && a.fine {
		err = errNotCommitted // if it was, the end that this makes comes too late
	}
	return err
}

// Own returns the Completion that the handler has stored itself, nil without one, and
// whether the handler has returned nil. Call it after Returned.
func (a *Attempt) Own() (out *driver.Completion, fine bool) { return a.own, a.fine }
