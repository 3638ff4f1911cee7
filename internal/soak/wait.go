package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// waits calls what waits. Nothing may keep it waiting, whenever the wheel ends.
func (l *life) waits() {
	for !l.ended.Load() {
		switch rand.IntN(8) {
		case 0, 1, 2:
			l.context()
		case 3, 4:
			l.timer()
		case 5:
			l.ticker()
		case 6:
			d := l.soon()
			due := l.soak.now() + d
			l.w.Sleep(d)
			l.notEarly("Sleep", l.soak.now(), due)
		default:
			d := l.soon()
			due := l.soak.now() + d
			at := <-l.w.After(d)
			l.notEarly("After", at.Sub(l.soak.begin), due)
		}
	}
}

func (l *life) soon() time.Duration {
	return time.Duration(rand.Int64N(1 << (8 + rand.IntN(18)))) // up to 33 ms
}

func (l *life) notEarly(kind string, at, due time.Duration) {
	if at < due {
		l.violate("%s: %v early", kind, due-at)
	}
}

func (l *life) timer() {
	l.soak.timers.Add(1)
	d := l.soon()
	due := l.soak.now() + d
	t := l.w.NewTimer(d)
	defer t.Stop()
	switch rand.IntN(3) {
	case 0:
		time.Sleep(l.soon())
		t.Stop()
		select {
		case at := <-t.C:
			l.violate("Timer: %v received after Stop", at.Sub(l.soak.begin))
		default:
		}
		d = l.soon()
		due = l.soak.now() + d
		t.Reset(d)
	case 1:
		time.Sleep(l.soon())
		d = l.soon()
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

func (l *life) ticker() {
	period := 1 + l.soon()
	begin := l.soak.now()
	t := l.w.NewTicker(period)
	defer t.Stop()
	for n := range rand.IntN(20) {
		if rand.IntN(8) == 0 {
			period = 1 + l.soon()
			begin = l.soak.now() - time.Duration(n)*period
			t.Reset(period)
		}
		select {
		case at := <-t.C:
			l.soak.ticks.Add(1)
			l.notEarly("Ticker", at.Sub(l.soak.begin), begin+time.Duration(n+1)*period)
		case <-l.over: // and the ticker with it
			return
		case <-time.After(patience):
			l.violate("Ticker lost: %d ticks of %v since %v", n, period, begin)
			return
		}
	}
}

// context makes a context with a deadline, below a parent or not, and sees to its end.
func (l *life) context() {
	l.soak.contexts.Add(1)
	parent, end := context.Background(), context.CancelFunc(func() {})
	if rand.IntN(2) == 0 {
		parent, end = context.WithCancel(parent)
	}
	defer end()
	due := time.Now().Add(l.soon())
	cause := errors.New("the cause")
	ctx, cancel := l.w.WithDeadlineCause(parent, due, cause)
	defer cancel()
	child, endChild := context.WithCancel(context.WithValue(ctx, l, l))
	defer endChild()
	cancelled := true
	switch rand.IntN(4) {
	case 0:
		cancel()
	case 1:
		end()
		cancelled = parent.Err() != nil
	case 2:
		time.Sleep(l.soon())
		cancel()
	default:
		cancelled = false
	}
	for _, c := range []context.Context{ctx, child} {
		select {
		case <-c.Done():
		case <-time.After(patience):
			l.violate("context lost: due at %v, now is %v", due, time.Now())
			return
		}
		expired := errors.Is(c.Err(), context.DeadlineExceeded) && errors.Is(context.Cause(c), cause)
		switch {
		case !expired && !(cancelled && errors.Is(c.Err(), context.Canceled)):
			l.violate("context: ended with %v, cause %v, cancelled %t", c.Err(), context.Cause(c), cancelled)
		case expired && time.Now().Before(due):
			l.violate("context: %v early", time.Until(due))
		}
	}
}
