package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// waiter makes calls that wait. Each of them must end, whenever the wheel ends.
type waiter struct{ *life }

func (l waiter) waits() {
	for !l.ending.quiet.Load() {
		switch rand.IntN(11) {
		case 8, 9:
			l.group()
		case 10:
			l.sleepContext()
		case 0, 1, 2:
			l.context()
		case 3, 4:
			l.timer()
		case 5:
			l.ticker()
		case 6:
			d := short()
			due := l.soak.now() + d
			l.w.Sleep(d)
			l.notEarly("Sleep", l.soak.now(), due)
		default:
			d := short()
			due := l.soak.now() + d
			at := <-l.w.After(d)
			l.notEarly("After", at.Sub(l.soak.begin), due)
		}
	}
}

func (l waiter) sleepContext() {
	d, patience := short(), short()
	due := l.soak.now() + d
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errOnPurpose)
	defer cancel()
	switch err := l.w.SleepContext(ctx, d); {
	case err == nil:
		l.notEarly("SleepContext", l.soak.now(), due)
	case !errors.Is(err, errOnPurpose) || ctx.Err() == nil:
		l.violate("SleepContext: %v", err)
	}
}

func (l waiter) timer() {
	l.soak.total.timers.Add(1)
	d := short()
	due := l.soak.now() + d
	t := l.w.NewTimer(d)
	defer t.Stop()
	switch rand.IntN(3) {
	case 0:
		time.Sleep(short())
		t.Stop()
		select {
		case at := <-t.C:
			l.violate("Timer: %v received after Stop", at.Sub(l.soak.begin))
		default:
		}
		d = short()
		due = l.soak.now() + d
		t.Reset(d)
	case 1:
		time.Sleep(short())
		d = short()
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
	period := 1 + short()
	begin := l.soak.now()
	t := l.w.NewTicker(period)
	defer t.Stop()
	for n := range rand.IntN(20) {
		if rand.IntN(8) == 0 {
			period = 1 + short()
			begin = l.soak.now() - time.Duration(n)*period
			t.Reset(period)
		}
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

// context makes a context with a deadline, with or without a parent that can be canceled,
// and checks how it ends.
func (l waiter) context() {
	l.soak.total.contexts.Add(1)
	parent, end := context.Background(), context.CancelFunc(func() {})
	if rand.IntN(2) == 0 {
		parent, end = context.WithCancel(parent)
	}
	defer end()
	due := time.Now().Add(short())
	cause := errors.New("the cause")
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
		l.checkContext(c, due, cause, canceled)
	}
}

// checkContext waits for c to end. It must have expired at or after due, or it may have
// been canceled.
func (l waiter) checkContext(c context.Context, due time.Time, cause error, canceled bool) {
	select {
	case <-c.Done():
	case <-time.After(patience):
		l.violate("context lost: due at %v, now is %v", due, time.Now())
		return
	}
	expired := errors.Is(c.Err(), context.DeadlineExceeded) && errors.Is(context.Cause(c), cause)
	switch {
	case !expired && !(canceled && errors.Is(c.Err(), context.Canceled)):
		l.violate("context: ended with %v, cause %v, canceled %t", c.Err(), context.Cause(c), canceled)
	case expired && time.Now().Before(due):
		l.violate("context: %v early", time.Until(due))
	}
}
