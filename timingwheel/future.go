package timingwheel

import (
	"container/list"
	"context"
	"time"

	"github.com/tickwheel/tickwheel/internal/nocopy"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Future is the result of a function that [Submit] runs. All methods are safe for
// concurrent use. A Future must not be copied.
type Future[T any] struct {
	_ nocopy.Mark

	f      func(ctx context.Context) (T, error)
	engine *engine.Engine
	entry  engine.Handle
	done   chan struct{}

	// Guarded by the shard's lock until done is closed.
	cancel context.CancelCauseFunc // of the running function's context
	elem   *list.Element           // of cancel among those that Stop calls
	ended  bool
	value  T
	err    error
}

// Submit arranges for f to run once, d from now, as [TimingWheel.Schedule] does, and
// returns a [Future] for its result. The context that f gets ends with Future.Cancel,
// with the wheel's Stop and when f returns. A panic in f becomes the Future's error, a
// [*PanicError], and reaches no handler. If f ends its goroutine (runtime.Goexit), the
// Future gets an error too.
//
// Submit panics on a nil function. It returns [ErrStopped] on a stopped wheel, and
// [ErrTooManyPending] where [WithMaxPending] permits no more. O(1).
func Submit[T any](w *TimingWheel, d time.Duration, f func(ctx context.Context) (T, error)) (*Future[T], error) {
	if f == nil {
		panic("timingwheel: Submit: nil function")
	}
	e, now := w.here()
	r := &Future[T]{f: f, engine: e, done: make(chan struct{})}
	after := engine.Delay{Now: now, D: d}
	r.entry.Join(r.engine)
	defer r.entry.UnlockShard()
	if err := r.entry.Accept(after, r.due, engine.Internal|engine.OneShot); err != nil {
		return nil, err
	}
	return r, nil
}

// due is the wheel's own task: it hands the function to the executor, or ends the Future
// if the wheel was stopped first. The caller holds the shard's lock.
func (r *Future[T]) due() {
	switch {
	case r.entry.Canceled(): // by cancelOnce, which has ended the Future
	case r.entry.Stopped():
		r.end(r.value, ErrStopped)
	default:
		r.entry.Execute((*futureRun[T])(r))
	}
}

// end ends the Future, if it has not ended before. The caller holds the shard's lock.
func (r *Future[T]) end(value T, err error) bool {
	if r.ended {
		return false
	}
	r.ended, r.value, r.err = true, value, err
	r.f = nil
	close(r.done)
	return true
}

// futureRun is a Future as the task that the executor runs.
type futureRun[T any] Future[T]

// Run runs the function.
//
// The context is no child of the wheel's: package context keeps children in a map, and a
// map does not shrink. After 300,000 functions that ran at the same time, the wheel's
// context held 14 MB for its life. So Stop ends the contexts itself.
func (t *futureRun[T]) Run() {
	r := (*Future[T])(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	f := r.begin(cancel)
	if f == nil {
		return
	}
	var value T
	err := errGoexit
	defer func() {
		if p := newPanicError(recover()); p != nil {
			err = p
			r.engine.CountPanic()
		}
		r.entry.LockShard()
		defer r.entry.UnlockShard()
		r.entry.Forget(r.elem)
		r.end(value, err)
	}()
	value, err = f(ctx)
}

// Discard ends the Future, and has nothing to run.
func (t *futureRun[T]) Discard() func() {
	r := (*Future[T])(t)
	r.entry.LockShard()
	defer r.entry.UnlockShard()
	if !r.end(r.value, ErrDiscarded) {
		return nil
	}
	return func() {}
}

// begin returns the function to run, or nil if the Future was canceled while it
// waited in the executor's queue. On a stopped wheel its context has ended.
func (r *Future[T]) begin(cancel context.CancelCauseFunc) func(ctx context.Context) (T, error) {
	r.entry.LockShard()
	defer r.entry.UnlockShard()
	if r.f == nil {
		return nil
	}
	r.cancel = cancel
	r.elem = r.entry.Remember(cancel)
	return r.f
}

// Wait waits for the result and returns it: the value and the error of the function. The
// error is a [*PanicError] if the function panicked, [ErrCanceled] after Cancel,
// [ErrStopped] if the wheel was stopped before the function was handed to the executor,
// and [ErrDiscarded] if a full pool.Pool discarded it. When ctx ends first, Wait returns
// context.Cause(ctx). Any number of goroutines may wait, any number of times. A task that
// runs inline must not call Wait.
func (r *Future[T]) Wait(ctx context.Context) (T, error) {
	r.engine.Clock().CheckOutside()
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

// Cancel makes [ErrCanceled] the result and returns true, or returns false if there is a
// result already. A function that has not begun will not run. The context of a function
// that has begun ends with ErrCanceled as its cause, and its result is dropped. O(1).
func (r *Future[T]) Cancel() bool {
	r.engine.Clock().CheckOutside()
	cancel, canceled := r.cancelOnce()
	if cancel != nil {
		cancel(ErrCanceled) // without a lock: it calls what others have registered
	}
	return canceled
}

func (r *Future[T]) cancelOnce() (cancel context.CancelCauseFunc, canceled bool) {
	r.entry.LockShard()
	defer r.entry.UnlockShard()
	var none T
	if !r.end(none, ErrCanceled) {
		return nil, false
	}
	r.entry.Cancel()
	return r.cancel, true
}
