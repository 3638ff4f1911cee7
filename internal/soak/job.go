package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// job is a Job, and what its runs are checked against.
type job struct {
	life    *life
	kind    string
	job     *timingwheel.Job
	ready   chan struct{} // is closed when job is there
	running atomic.Bool
	runs    atomic.Int64
	reset   atomic.Bool // its times are others than they were

	first, period time.Duration // of a rate
	delay         bool          // the period counts from the end of a run
	wall          atomic.Int64  // of a calendar: what it has said last
	left          int           // of a calendar: how often it will answer
}

const jobs = 40 // at a time, on a wheel

// job makes a job, or does something to one.
func (l *life) job() {
	l.mu.Lock()
	if len(l.jobs) < jobs {
		l.mu.Unlock()
		l.newJob()
		return
	}
	j := l.jobs[rand.IntN(len(l.jobs))]
	l.mu.Unlock()
	switch rand.IntN(4) {
	case 0:
		if j.stop() {
			l.waiters.Go(j.ended)
		}
	case 1:
		j.reset.Store(true)
		j.job.Reset(time.Duration(1 + rand.IntN(20_000_000)))
	case 2:
		j.job.Next()
	default:
		j.job.Runs()
	}
}

func (l *life) newJob() {
	j := &job{life: l, ready: make(chan struct{}), period: time.Duration(1 + rand.IntN(1<<(15+rand.IntN(10)))), left: rand.IntN(100)}
	initial := l.delay()
	missed := timingwheel.OnMissed(pick(timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay))
	j.first = l.soak.now() + max(0, initial)
	var err error
	switch rand.IntN(3) {
	case 0:
		j.kind = "job at a fixed rate"
		j.period = max(j.period, 100*time.Microsecond) // what it misses it makes up for
		j.job, err = l.w.ScheduleAtFixedRate(initial, j.period, j.run, missed)
	case 1:
		j.kind, j.delay = "job with a fixed delay", true
		j.job, err = l.w.ScheduleWithFixedDelay(initial, j.period, j.run)
	default:
		j.kind, j.period = "job on the calendar", 0
		j.job, err = l.w.ScheduleFunc(j, j.run, missed)
	}
	close(j.ready)
	if err != nil {
		if !errors.Is(err, timingwheel.ErrStopped) || !l.ending.Load() {
			l.violate("%s: refused without reason: %v", j.kind, err)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs = append(l.jobs, j)
}

// Next is that of a Scheduler.
func (j *job) Next(prev time.Time) time.Time {
	if j.left--; j.left < 0 {
		return time.Time{}
	}
	next := prev.Add(time.Duration(1 + rand.IntN(30_000_000)))
	j.wall.Store(next.UnixNano())
	return next
}

func (j *job) run() {
	l := j.life
	if l.mode.Load() != running {
		return // one that was discarded
	}
	if !j.running.CompareAndSwap(false, true) {
		l.violate("%s: runs overlap", j.kind)
	}
	defer func() {
		if j.delay {
			j.first = l.soak.now() + j.period
		}
		j.running.Store(false)
	}()
	runs := j.runs.Add(1)
	l.soak.runs.Add(1)
	j.checkTime(runs)
	if rand.IntN(50) == 0 {
		<-j.ready
		j.job.Stop()
	}
	l.misbehave(nil)
}

func (j *job) checkTime(runs int64) {
	now, due := j.life.soak.now(), j.first
	switch {
	case j.period == 0:
		now, due = time.Duration(time.Now().UnixNano()), time.Duration(j.wall.Load())
	case j.reset.Load():
		return
	case !j.delay:
		due += time.Duration(runs-1) * j.period
	}
	if now < due {
		j.life.violate("%s: %v early", j.kind, due-now)
	}
}

// stop takes the job from those that there are, unless another has, and ends it.
func (j *job) stop() bool {
	l := j.life
	l.mu.Lock()
	i := slices.Index(l.jobs, j)
	if i >= 0 {
		l.jobs = slices.Delete(l.jobs, i, i+1)
	}
	l.mu.Unlock()
	j.job.Stop()
	return i >= 0
}

// ended checks a job that has been stopped: no run began after Stop.
func (j *job) ended() {
	runs := j.job.Runs()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := j.job.StopWait(ctx); err != nil {
		j.life.violate("%s: StopWait: %v\n%s", j.kind, err, stacks())
		return
	}
	if j.running.Load() {
		j.life.violate("%s: runs after StopWait", j.kind)
	}
	if n := j.runs.Load(); n != runs || j.job.Runs() != runs {
		j.life.violate("%s: %d runs, %d when it was stopped, %d counted", j.kind, n, runs, j.job.Runs())
	}
	switch err := j.job.Err(); {
	case err == nil:
		if j.period != 0 {
			j.life.violate("%s: ended without reason", j.kind)
		}
	case errors.Is(err, timingwheel.ErrCanceled), errors.Is(err, errOnPurpose):
	case errors.Is(err, timingwheel.ErrStopped) && j.life.ending.Load():
	default:
		j.life.violate("%s: ended by %v", j.kind, err)
	}
}

// finish ends what is left on a wheel that has been stopped.
func (l *life) finish() {
	l.mu.Lock()
	left := slices.Clone(l.jobs)
	l.mu.Unlock()
	for _, j := range left {
		if j.stop() {
			j.ended()
		}
	}
}
