package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// future is a Future, and what its result is checked against.
type future struct {
	life      *life
	due       time.Duration
	cancelled bool
	begun     atomic.Int64
	result    *timingwheel.Future[time.Duration]
}

const futures = 100 // at a time, on a wheel

// future submits a function and waits, in a goroutine, for its result.
func (l *life) future() {
	if l.waiting.Add(1) > futures {
		l.waiting.Add(-1)
		return
	}
	d := l.delay()
	f := &future{life: l, due: l.soak.now() + max(0, d)}
	var err error
	f.result, err = timingwheel.Submit(l.w, d, f.run)
	if err != nil {
		l.waiting.Add(-1)
		switch {
		case errors.Is(err, timingwheel.ErrTooManyPending) && l.shape.limit > 0:
			l.refused.Add(1)
		case errors.Is(err, timingwheel.ErrStopped) && l.ending.Load():
		default:
			l.violate("Submit: refused without reason: %v", err)
		}
		return
	}
	l.soak.futures.Add(1)
	if rand.IntN(4) == 0 || d > time.Second {
		f.cancelled = f.result.Cancel()
	}
	l.waiters.Go(func() {
		defer l.waiting.Add(-1)
		f.check(f.result.Wait(context.Background()))
	})
}

func (f *future) run(ctx context.Context) (time.Duration, error) {
	l := f.life
	if f.begun.Add(1) > 1 {
		l.violate("Submit: ran twice")
	}
	l.notEarly("Submit", l.soak.now(), f.due)
	switch rand.IntN(8) {
	case 0:
		if l.shape.mayBlock() {
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		}
	case 1:
		l.futures.Add(1)
		panic(errOnPurpose)
	}
	return f.due, nil
}

// check checks the result. A function that has begun may be cancelled all the same.
func (f *future) check(value time.Duration, err error) {
	l, begun := f.life, f.begun.Load()
	switch {
	case err == nil && value == f.due && begun == 1 && !f.cancelled:
	case errors.Is(err, timingwheel.ErrCanceled) && f.cancelled:
	case errors.Is(err, errOnPurpose) && begun == 1 && !f.cancelled:
	case errors.Is(err, timingwheel.ErrDiscarded) && begun == 0 && l.shape.executor == poolDiscard:
	case errors.Is(err, timingwheel.ErrStopped) && begun == 0 && l.ending.Load():
	default:
		l.violate("Submit: %v, %v; cancelled %t, ran %d times", value, err, f.cancelled, begun)
	}
}
