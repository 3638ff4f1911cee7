package timingwheel

import (
	"context"
	"errors"
	"time"
)

// Future is the result of a function that [Submit] runs. All methods are safe for
// concurrent use.
type Future[T any] struct {
	f     func(ctx context.Context) (T, error)
	wheel *TimingWheel
	shard *shard
	done  chan struct{}

	// Guarded by shard.mu until done is closed.
	handle handle
	cancel context.CancelCauseFunc // of the running function's context
	ended  bool
	value  T
	err    error
}

// Submit arranges for f to run once, d from now, as [TimingWheel.Schedule] does, and
// returns a [Future] for its result. The context that f gets ends with Future.Cancel,
// with the wheel's Stop and when f returns. A panic in f becomes the Future's error, with
// its stack, and reaches no handler; a f that ends its goroutine (runtime.Goexit)
// leaves an error too.
//
// Submit panics on a nil function. It returns [ErrStopped] on a stopped wheel, and
// [ErrTooManyPending] where [WithMaxPending] permits no more. O(1).
func Submit[T any](w *TimingWheel, d time.Duration, f func(ctx context.Context) (T, error)) (*Future[T], error) {
	if f == nil {
		panic("timingwheel: Submit: nil function")
	}
	r := &Future[T]{f: f, wheel: w, done: make(chan struct{})}
	after := delay{w.clock.now(), d}
	r.shard = w.lock()
	defer r.shard.mu.Unlock()
	var err error
	if r.handle, err = r.shard.accept(after, r.expire, own|oneShot); err != nil {
		return nil, err
	}
	return r, nil
}

// expire is the wheel's own task, called with shard.mu held.
func (r *Future[T]) expire() {
	if r.shard.stopped {
		r.end(r.value, ErrStopped)
	} else {
		r.shard.driver.expired.tasks = append(r.shard.driver.expired.tasks, r)
	}
}

// end is called with shard.mu held. The first end counts.
func (r *Future[T]) end(value T, err error) bool {
	if r.ended {
		return false
	}
	r.ended, r.value, r.err = true, value, err
	r.f = nil
	close(r.done)
	return true
}

// ErrDiscarded is the error of a [Future] whose function a full [Pool] has discarded.
var ErrDiscarded = errors.New("timingwheel: discarded")

var errGoexit = errors.New("timingwheel: the function ended its goroutine")

// run is the task that the executor runs.
func (r *Future[T]) run() {
	ctx, cancel := context.WithCancelCause(r.wheel.ctx)
	defer cancel(nil)
	f := r.begin(cancel)
	if f == nil {
		return
	}
	var value T
	err := errGoexit
	defer func() {
		if p := recovered(recover()); p != nil {
			err = p
			r.wheel.runner.panicked.Add(1)
		}
		r.shard.lock()
		defer r.shard.mu.Unlock()
		r.end(value, err)
	}()
	value, err = f(ctx)
}

// discard ends the Future, and has nothing to run.
func (r *Future[T]) discard() func() {
	r.shard.lock()
	defer r.shard.mu.Unlock()
	if !r.end(r.value, ErrDiscarded) {
		return nil
	}
	return func() {}
}

// begin returns the function to run, or nil if the Future was cancelled while it
// waited in the executor's queue.
func (r *Future[T]) begin(cancel context.CancelCauseFunc) func(ctx context.Context) (T, error) {
	r.shard.lock()
	defer r.shard.mu.Unlock()
	r.cancel = cancel
	return r.f
}

// Wait waits for the result and returns it: the value and the error of the function, an
// error with the value and the stack of its panic, [ErrCancelled] after Cancel,
// [ErrStopped] if the wheel was stopped before the function was handed to the executor,
// or [ErrDiscarded]. When ctx ends first it returns context.Cause(ctx). Any number of
// goroutines may wait, as often as they like. A task that runs inline must not.
func (r *Future[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-r.done:
		return r.value, r.err
	default:
	}
	select {
	case <-r.done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the result is there.
func (r *Future[T]) Done() <-chan struct{} { return r.done }

// Cancel makes [ErrCancelled] the result and returns true, or false if there is a
// result already. A function that has not begun will not run; the context of one
// that has ends, with ErrCancelled as its cause, and what it returns is forgotten.
// O(1).
func (r *Future[T]) Cancel() bool {
	cancel, cancelled := r.cancelOnce()
	if cancel != nil {
		cancel(ErrCancelled) // without a lock: it calls what others have registered
	}
	return cancelled
}

func (r *Future[T]) cancelOnce() (cancel context.CancelCauseFunc, cancelled bool) {
	r.shard.lock()
	defer r.shard.mu.Unlock()
	var none T
	if !r.end(none, ErrCancelled) {
		return nil, false
	}
	r.shard.cancel(r.handle)
	return r.cancel, true
}
