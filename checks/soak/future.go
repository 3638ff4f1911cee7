package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// futures are those of Submit.
type futures struct {
	life    *life
	waiting atomic.Int64   // how many have no result yet
	waiters sync.WaitGroup // the goroutines that wait for the results
}

const mostFutures = 100 // at the same time, on one wheel

// submit submits a function, and waits for its result in a goroutine.
func (fs *futures) submit() {
	if fs.waiting.Add(1) > mostFutures {
		fs.waiting.Add(-1)
		return
	}
	l := fs.life
	d := l.delay()
	f := &future{life: l, due: l.soak.now() + max(0, d)}
	var err error
	f.result, err = timingwheel.Submit(l.w, d, f.run)
	if err != nil {
		fs.waiting.Add(-1)
		l.refused("Submit", err)
		return
	}
	l.soak.total.futures.Add(1)
	if rand.IntN(4) == 0 || d > time.Second {
		f.canceled = f.result.Cancel()
	}
	fs.waiters.Go(func() {
		defer fs.waiting.Add(-1)
		f.check(f.result.Wait(context.Background()))
	})
}

// finish waits until all futures have a result. The wheel must have been stopped.
func (fs *futures) finish() {
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		fs.waiters.Wait()
	}()
	select {
	case <-waited:
	case <-time.After(patience):
		fs.life.violate("%d futures have no result\n%s", fs.waiting.Load(), stacks())
	}
}

// future is a Future, and what its result is checked against.
type future struct {
	life     *life
	due      time.Duration
	canceled bool
	begun    atomic.Int64 // how often the function has begun
	result   *timingwheel.Future[time.Duration]
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
		l.faults.inFutures.Add(1)
		panic(errOnPurpose)
	}
	return f.due, nil
}

// check checks the result. Cancel may return true for a function that has begun, so a
// canceled future says nothing about begun.
func (f *future) check(value time.Duration, err error) {
	l, begun := f.life, f.begun.Load()
	switch {
	case err == nil && value == f.due && begun == 1 && !f.canceled:
	case errors.Is(err, timingwheel.ErrCanceled) && f.canceled:
	case errors.Is(err, errOnPurpose) && begun == 1 && !f.canceled:
	case errors.Is(err, timingwheel.ErrDiscarded) && begun == 0 && l.shape.executor == poolDiscard:
	case errors.Is(err, timingwheel.ErrStopped) && begun == 0 && l.ending.begun.Load():
	default:
		l.violate("Submit: %v, %v; canceled %t, ran %d times", value, err, f.canceled, begun)
	}
}
