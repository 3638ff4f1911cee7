package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// waits makes calls that wait. Each of them must end, whenever the wheel ends.
func (l *life) waits() {
	for !l.quiet.Load() {
		d := short()
		due := l.soak.now() + d
		switch rand.IntN(12) {
		case 0:
			l.w.Sleep(d)
			l.notEarly("Sleep", l.soak.now(), due)
		case 1:
			at := <-l.w.After(d)
			l.notEarly("After", at.Sub(l.soak.begin), due)
		case 2:
			l.sleepContext(d, due)
		case 3, 4:
			l.context(d)
		case 5, 6:
			l.timer(d)
		case 7, 8:
			l.ticker(1 + d)
		case 9:
			l.future(d, due)
		default:
			l.job()
		}
	}
}

func (l *life) sleepContext(d, due time.Duration) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), short(), errOnPurpose)
	defer cancel()
	switch err := l.w.SleepContext(ctx, d); {
	case err == nil:
		l.notEarly("SleepContext", l.soak.now(), due)
	case !errors.Is(err, errOnPurpose) || ctx.Err() == nil:
		l.violate("SleepContext: %v", err)
	}
}

// context makes a context with a deadline and derives another. Both expire at or after the
// deadline, or are canceled.
func (l *life) context(d time.Duration) {
	l.soak.count("context").Add(1)
	parent, end := context.WithCancel(context.Background())
	defer end()
	due, cause := time.Now().Add(d), errors.New("the cause")
	ctx, cancel := l.w.WithDeadlineCause(parent, due, cause)
	defer cancel()
	child, endChild := context.WithCancel(context.WithValue(ctx, l, l))
	defer endChild()
	how := rand.IntN(4)
	switch how {
	case 0:
		cancel()
	case 1:
		end()
	case 2:
		time.Sleep(short())
		cancel()
	}
	for _, c := range []context.Context{ctx, child} {
		select {
		case <-c.Done():
		case <-time.After(patience):
			l.violate("context lost: due at %v, now is %v", due, time.Now())
			return
		}
		expired := errors.Is(c.Err(), context.DeadlineExceeded) && errors.Is(context.Cause(c), cause)
		if canceled := how < 3 && errors.Is(c.Err(), context.Canceled); !expired && !canceled || expired && time.Now().Before(due) {
			l.violate("context: ended with %v, cause %v, %v before its deadline", c.Err(), context.Cause(c), time.Until(due))
		}
	}
}

// timer makes a Timer with a channel, and perhaps resets it, after Stop or without it.
func (l *life) timer(d time.Duration) {
	l.soak.count("timer").Add(1)
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

func (l *life) ticker(period time.Duration) {
	begin := l.soak.now()
	t := l.w.NewTicker(period)
	defer t.Stop()
	for n := range rand.IntN(20) {
		select {
		case at := <-t.C:
			l.soak.count("tick").Add(1)
			l.notEarly("Ticker", at.Sub(l.soak.begin), begin+time.Duration(n+1)*period)
		case <-l.over: // the ticker ends with its wheel
			return
		case <-time.After(patience):
			l.violate("Ticker lost: %d ticks of %v since %v", n, period, begin)
			return
		}
	}
}

// future submits a function, and checks its result.
func (l *life) future(d, due time.Duration) {
	l.soak.count("future").Add(1)
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
	case errors.Is(err, timingwheel.ErrStopped) && ran == 0 && l.begun.Load():
	default:
		l.violate("Submit: %v, %v; canceled %t, ran %d times", value, err, canceled, ran)
	}
}

// job lets a Job run for a moment, stops it, and checks that its runs were one at a time, no run was
// early, and none began after Stop.
func (l *life) job() {
	var running, reset atomic.Bool // reset: the times of the runs are not known
	var runs atomic.Int64
	period := 100*time.Microsecond + rand.N(time.Duration(1<<(15+rand.IntN(10)))) // a rate makes up for every missed run
	survives, delay, initial := rand.IntN(2) == 0, rand.IntN(2) == 0, l.delay()
	due := l.soak.now() + max(0, initial)
	var j *timingwheel.Job
	ready := make(chan struct{}) // closed when j is set
	run := func() {
		if l.mode.Load() != 0 {
			return // it was discarded
		}
		if !running.CompareAndSwap(false, true) {
			l.violate("Job: runs overlap")
		}
		defer running.Store(false)
		runs.Add(1)
		l.soak.count("run of a job").Add(1)
		if !reset.Load() {
			l.notEarly("Job", l.soak.now(), due)
		}
		if due += period; delay {
			defer func() { due = l.soak.now() + period }()
		}
		if rand.IntN(50) == 0 {
			<-ready
			j.Stop()
		}
		l.misbehave(nil)
	}
	opts := []timingwheel.JobOption{}
	if survives {
		opts = append(opts, timingwheel.SurvivePanics())
	}
	var err error
	if delay {
		j, err = l.w.ScheduleWithFixedDelay(initial, period, run, opts...)
	} else {
		missed := pick(timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay)
		j, err = l.w.ScheduleAtFixedRate(initial, period, run, append(opts, timingwheel.OnMissed(missed))...)
	}
	close(ready)
	if err != nil { // jobs do not count against the limit
		if !errors.Is(err, timingwheel.ErrStopped) || !l.begun.Load() {
			l.violate("Job: refused without reason: %v", err)
		}
		return
	}
	for range rand.IntN(5) {
		time.Sleep(short())
		if rand.IntN(3) == 0 {
			reset.Store(true)
			j.Reset(1 + rand.N(20*time.Millisecond))
		}
		j.Next()
	}
	j.Stop()
	stopped := j.Runs()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := j.StopWait(ctx); err != nil || running.Load() {
		l.violate("Job: StopWait: %v, runs: %t\n%s", err, running.Load(), stacks())
	} else if n := runs.Load(); n != stopped || j.Runs() != stopped {
		l.violate("Job: %d runs, %d when it was stopped, %d counted", n, stopped, j.Runs())
	}
	switch err := j.Err(); {
	case errors.Is(err, timingwheel.ErrCanceled), errors.Is(err, errOnPurpose) && !survives:
	case errors.Is(err, timingwheel.ErrStopped) && l.begun.Load():
	default:
		l.violate("Job: ended by %v", err)
	}
}
