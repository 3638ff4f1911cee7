package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

// ownEnd is what a handler has written down of the end of its attempt.
type ownEnd struct {
	w *Worker
	t *task

	mu   sync.Mutex
	out  *driver.Completion // that was written last; nil: none was
	over bool               // the handler has returned
	fine bool               // and what it has returned is nil
}

// Complete is that of [driver.Attempt].
func (a *Attempt) Complete(ctx context.Context, write func(driver.Worker, driver.Completion) error) error {
	c := a.ownEnd
	out := driver.Completion{Delivery: c.t.held, End: driver.Done}
	c.w.env.Times.Follow(&out, c.t.began)
	err := driver.ErrChanged
	for range recur.Tries {
		if c.isOver() {
			return fmt.Errorf("%w: the handler has returned", driver.ErrLeaseLost)
		}
		if err = write(c.w.engine, out); !errors.Is(err, driver.ErrChanged) {
			break
		}
		if err := c.w.env.Times.FollowAgain(ctx, &out, c.t.began); err != nil {
			return err
		}
	}
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.out = &out
	}
	return err
}

func (c *ownEnd) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// end is called when the handler has returned err. It returns what the handler has written
// down, and what err comes to. A nil ownEnd is that of an attempt that no handler was called for.
func (c *ownEnd) end(err error) (*driver.Completion, error) {
	if c == nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over, c.fine = true, err == nil
	if c.out != nil && c.fine {
		err = errNotCommitted // if it was, the end that this makes comes too late
	}
	return c.out, err
}

// completed is called of a task whose handler has written its end down, when there is
// nothing left that another end could be of: if the handler has returned nil, because that
// was committed. If it has failed its commit may have been done all the same, its answer
// lost. w.mu is held.
func (w *Worker) completed(e *ended) {
	if e.task.ownEnd.fine {
		w.tally(&ended{task: e.task, out: *e.task.completed})
	} else {
		w.env.Stats.LeaseLost.Add(1)
		w.env.Log.Warn("durable: an attempt was completed in its handler's transaction, or another worker has taken over",
			"ref", e.out.Delivery.Ref, "error", e.out.Error)
	}
	w.forget(e.task)
}

// followChanged writes an end again after its schedule has changed.
func (w *Worker) followChanged(e *ended) {
	w.side.Go(func() {
		defer w.ends.Put(e)
		ctx, cancel := context.WithTimeout(context.Background(), w.env.Lease)
		defer cancel()
		if err := w.env.Times.FollowAgain(ctx, &e.out, e.task.began); err != nil {
			w.env.Log.Warn("durable: a schedule could not be read; trying again", "name", e.out.Delivery.Record.Schedule, "error", err)
			sleep(ctx, 200*time.Millisecond)
		}
	})
}
