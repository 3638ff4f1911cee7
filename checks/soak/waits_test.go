package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// waits are the calls that wait, or make something to wait for, with a delay of d. Each must end,
// whenever the wheel ends: live sees to that.
var waits = []func(l *life, d time.Duration){
	func(l *life, d time.Duration) {
		due := time.Now().Add(d)
		l.w.Sleep(d)
		l.notEarly("Sleep", time.Now(), due)
	},
	func(l *life, d time.Duration) {
		due := time.Now().Add(d)
		l.notEarly("After", <-l.w.After(d), due)
	},
	(*life).sleepContext, (*life).context, (*life).timer, (*life).ticker, (*life).future, (*life).job,
}

func (l *life) sleepContext(d time.Duration) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), short(), errOnPurpose)
	defer cancel()
	due := time.Now().Add(d)
	switch err := l.w.SleepContext(ctx, d); {
	case err == nil:
		l.notEarly("SleepContext", time.Now(), due)
	case !errors.Is(err, errOnPurpose) || ctx.Err() == nil:
		l.violate("SleepContext: %v", err)
	}
}

// context makes a context with a deadline and derives another. Both expire at or after the
// deadline, or are canceled.
func (l *life) context(d time.Duration) {
	l.soak.count("context")
	parent, end := context.WithCancel(context.Background())
	defer end()
	due := time.Now().Add(d)
	ctx, cancel := l.w.WithDeadlineCause(parent, due, errOnPurpose)
	defer cancel()
	child, endChild := context.WithCancel(context.WithValue(ctx, l, l))
	defer endChild()
	canceled := rand.IntN(4) > 0
	if canceled {
		time.Sleep(pick(0, 0, short()))
		pick(cancel, end)()
	}
	for _, c := range []context.Context{ctx, child} {
		<-c.Done()
		expired := errors.Is(c.Err(), context.DeadlineExceeded) && context.Cause(c) == errOnPurpose
		if expired {
			l.notEarly("context", time.Now(), due)
		} else if !canceled || !errors.Is(c.Err(), context.Canceled) {
			l.violate("context: ended with %v, cause %v", c.Err(), context.Cause(c))
		}
	}
}

// timer makes a Timer with a channel, and perhaps resets it, after Stop or without it.
func (l *life) timer(d time.Duration) {
	l.soak.count("timer")
	due := time.Now().Add(d)
	t := l.w.NewTimer(d)
	defer t.Stop()
	if again := rand.IntN(3); again > 0 {
		time.Sleep(short())
		if again == 1 {
			t.Stop()
			select {
			case <-t.C:
				l.violate("timer: received after Stop")
			default:
			}
		}
		due = time.Now().Add(d)
		t.Reset(d)
	}
	l.notEarly("timer", <-t.C, due)
}

func (l *life) ticker(d time.Duration) {
	period := 1 + d
	due := time.Now()
	t := l.w.NewTicker(period)
	defer t.Stop()
	for range rand.IntN(20) {
		select {
		case at := <-t.C:
			l.soak.count("tick")
			due = due.Add(period)
			l.notEarly("tick", at, due)
		case <-l.over: // the ticker ends with its wheel
			return
		}
	}
}

// future submits a function, and checks its result.
func (l *life) future(d time.Duration) {
	l.soak.count("future")
	var runs atomic.Int64
	due := time.Now().Add(d)
	f, err := timingwheel.Submit(l.w, d, func(context.Context) (time.Time, error) {
		runs.Add(1)
		l.notEarly("future", time.Now(), due)
		return due, pick(nil, errOnPurpose)
	})
	if err != nil {
		l.refused("future", err)
		return
	}
	canceled := rand.IntN(4) == 0 && f.Cancel()
	value, err := f.Wait(context.Background())
	ran := runs.Load()
	switch {
	case canceled && errors.Is(err, timingwheel.ErrCanceled): // perhaps after it has begun
	case !canceled && ran == 1 && value == due && (err == nil || err == errOnPurpose):
	case ran == 0 && errors.Is(err, timingwheel.ErrDiscarded) && l.shape.executor == "pool, discards":
	case ran == 0 && errors.Is(err, timingwheel.ErrStopped) && l.begun.Load():
	default:
		l.violate("future: %v, %v; canceled %t, ran %d times", value, err, canceled, ran)
	}
}

// job lets a Job run for a moment, stops it, and checks that its runs were one at a time, that no
// run was early, and that none began after Stop.
func (l *life) job(time.Duration) {
	var running, reset atomic.Bool // reset: the times of the runs are not known
	var runs atomic.Int64
	fixedDelay, initial := rand.IntN(2) == 0, l.delay()
	period := 100*time.Microsecond + short() // a rate makes up for every missed run
	due := time.Now().Add(max(0, initial))
	run := func() {
		if l.mode.Load() != ran {
			return // it was discarded
		}
		if !running.CompareAndSwap(false, true) {
			l.violate("job: runs overlap")
		}
		defer running.Store(false)
		runs.Add(1)
		l.soak.count("run of a job")
		now := time.Now()
		if !reset.Load() {
			l.notEarly("job", now, due)
		}
		if due = due.Add(period); fixedDelay {
			due = now.Add(period)
		}
		l.misbehave(nil)
	}
	var j *timingwheel.Job
	var err error
	if fixedDelay {
		j, err = l.w.ScheduleWithFixedDelay(initial, period, run, timingwheel.SurvivePanics())
	} else {
		missed := pick(timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay)
		j, err = l.w.ScheduleAtFixedRate(initial, period, run, timingwheel.OnMissed(missed))
	}
	if err != nil {
		l.refused("job", err)
		return
	}
	for range rand.IntN(5) {
		time.Sleep(short())
		if rand.IntN(3) == 0 {
			reset.Store(true)
			j.Reset(1 + short())
		}
		j.Next()
	}
	j.Stop()
	stopped := j.Runs()
	err = j.StopWait(context.Background())
	if n := runs.Load(); err != nil || running.Load() || n != stopped || j.Runs() != stopped {
		l.violate("job: StopWait: %v, runs: %t; %d runs, %d when it was stopped, %d counted", err, running.Load(), n, stopped, j.Runs())
	}
	switch err := j.Err(); {
	case errors.Is(err, timingwheel.ErrCanceled), errors.Is(err, errOnPurpose) && !fixedDelay:
	case errors.Is(err, timingwheel.ErrStopped) && l.begun.Load():
	default:
		l.violate("job: ended by %v", err)
	}
}
