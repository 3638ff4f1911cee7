package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// waiter makes calls that wait. Each of them must end, whenever the wheel ends.
type waiter struct{ *life }

func (l waiter) waits() {
	for !l.ending.quiet.Load() {
		d := short()
		due := l.soak.now() + d
		switch rand.IntN(15) {
		case 0, 1, 2:
			l.context()
		case 3, 4, 5:
			l.timer()
		case 6, 7:
			l.ticker()
		case 8:
			l.w.Sleep(d)
			l.notEarly("Sleep", l.soak.now(), due)
		case 9:
			at := <-l.w.After(d)
			l.notEarly("After", at.Sub(l.soak.begin), due)
		case 10:
			l.sleepContext()
		case 11, 12:
			l.future()
		default:
			newJob(l.life).live()
		}
	}
}

func (l waiter) sleepContext() {
	d := short()
	due := l.soak.now() + d
	ctx, cancel := context.WithTimeoutCause(context.Background(), short(), errOnPurpose)
	defer cancel()
	switch err := l.w.SleepContext(ctx, d); {
	case err == nil:
		l.notEarly("SleepContext", l.soak.now(), due)
	case !errors.Is(err, errOnPurpose) || ctx.Err() == nil:
		l.violate("SleepContext: %v", err)
	}
}

// timer makes a Timer with a channel, and perhaps resets it, after Stop or without it.
func (l waiter) timer() {
	l.soak.total.timers.Add(1)
	d := short()
	due := l.soak.now() + d
	t := l.w.NewTimer(d)
	defer t.Stop()
	if again := rand.IntN(3); again > 0 {
		time.Sleep(short())
		if again == 1 {
			t.Stop()
			select {
			case <-t.C:
				l.violate("Timer: received after Stop")
			default:
			}
		}
		due = l.soak.now() + d
		t.Reset(d)
	}
	select {
	case at := <-t.C:
		l.notEarly("Timer", at.Sub(l.soak.begin), due)
	case <-time.After(patience):
		l.violate("Timer lost: due at %v, now is %v", due, l.soak.now())
	}
}

func (l waiter) ticker() {
	period, begin := 1+short(), l.soak.now()
	t := l.w.NewTicker(period)
	defer t.Stop()
	for n := range rand.IntN(20) {
		select {
		case at := <-t.C:
			l.soak.total.ticks.Add(1)
			l.notEarly("Ticker", at.Sub(l.soak.begin), begin+time.Duration(n+1)*period)
		case <-l.ending.over: // the ticker ends with its wheel
			return
		case <-time.After(patience):
			l.violate("Ticker lost: %d ticks of %v since %v", n, period, begin)
			return
		}
	}
}

// context makes a context with a deadline and derives another. Both expire at or after the
// deadline, or are canceled: by themselves or by their parent.
func (l waiter) context() {
	l.soak.total.contexts.Add(1)
	parent, end := context.WithCancel(context.Background())
	defer end()
	if rand.IntN(2) == 0 {
		parent = context.Background()
	}
	due, cause := time.Now().Add(short()), errors.New("the cause")
	ctx, cancel := l.w.WithDeadlineCause(parent, due, cause)
	defer cancel()
	child, endChild := context.WithCancel(context.WithValue(ctx, l, l))
	defer endChild()
	canceled := true
	switch rand.IntN(4) {
	case 0:
		cancel()
	case 1:
		end()
		canceled = parent.Err() != nil
	case 2:
		time.Sleep(short())
		cancel()
	default:
		canceled = false
	}
	for _, c := range []context.Context{ctx, child} {
		select {
		case <-c.Done():
		case <-time.After(patience):
			l.violate("context lost: due at %v, now is %v", due, time.Now())
			return
		}
		expired := errors.Is(c.Err(), context.DeadlineExceeded) && errors.Is(context.Cause(c), cause)
		if !expired && !(canceled && errors.Is(c.Err(), context.Canceled)) || expired && time.Now().Before(due) {
			l.violate("context: ended with %v, cause %v, canceled %t, %v before its deadline", c.Err(), context.Cause(c), canceled, time.Until(due))
		}
	}
}

// future submits a function, and checks its result.
func (l waiter) future() {
	l.soak.total.futures.Add(1)
	d := short()
	due := l.soak.now() + d
	var begun atomic.Int64
	f, err := timingwheel.Submit(l.w, d, func(ctx context.Context) (time.Duration, error) {
		begun.Add(1)
		l.notEarly("Submit", l.soak.now(), due)
		if rand.IntN(8) == 0 {
			l.inFutures.Add(1)
			panic(errOnPurpose)
		}
		return due, nil
	})
	if err != nil {
		l.refused("Submit", err)
		return
	}
	canceled := rand.IntN(4) == 0 && f.Cancel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	value, err := f.Wait(ctx)
	ran := begun.Load()
	switch {
	case err == nil && value == due && ran == 1 && !canceled:
	case errors.Is(err, timingwheel.ErrCanceled) && canceled: // perhaps after it has begun
	case errors.Is(err, errOnPurpose) && ran == 1 && !canceled:
	case errors.Is(err, timingwheel.ErrDiscarded) && ran == 0 && l.shape.executor == poolDiscard:
	case errors.Is(err, timingwheel.ErrStopped) && ran == 0 && l.ending.begun.Load():
	default:
		l.violate("Submit: %v, %v; canceled %t, ran %d times", value, err, canceled, ran)
	}
}
