package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// job is a Job, and what its runs are checked against.
type job struct {
	life    *life
	kind    string
	job     *timingwheel.Job
	ready   chan struct{} // closed when job is set
	running atomic.Bool
	runs    atomic.Int64
	reset   atomic.Bool // the times of its runs are no longer known

	first, period time.Duration
	delay         bool // the period counts from the end of a run
	survives      bool // panics of its runs
}

func newJob(l *life) *job {
	return &job{
		life:   l,
		ready:  make(chan struct{}),
		period: 100*time.Microsecond + time.Duration(rand.IntN(1<<(15+rand.IntN(10)))), // a rate makes up for every missed run
	}
}

// live makes the job, lets it run for a moment, and stops it. Jobs do not count against the
// limit of a wheel, so an ending wheel is the only reason to refuse one.
func (j *job) live() {
	if err := j.schedule(j.life.delay()); err != nil {
		if !errors.Is(err, timingwheel.ErrStopped) || !j.life.ending.begun.Load() {
			j.life.violate("%s: refused without reason: %v", j.kind, err)
		}
		return
	}
	for range rand.IntN(5) {
		time.Sleep(short())
		if rand.IntN(3) == 0 {
			j.reset.Store(true)
			j.job.Reset(time.Duration(1 + rand.IntN(20_000_000)))
		}
		j.job.Next()
	}
	j.job.Stop()
	j.ended()
}

// schedule schedules j at a fixed rate or with a fixed delay.
func (j *job) schedule(initial time.Duration) (err error) {
	defer close(j.ready)
	w := j.life.w
	opts := []timingwheel.JobOption{}
	if j.survives = rand.IntN(2) == 0; j.survives {
		opts = append(opts, timingwheel.SurvivePanics())
	}
	j.first = j.life.soak.now() + max(0, initial)
	if j.delay = rand.IntN(2) == 0; j.delay {
		j.kind = "job with a fixed delay"
		j.job, err = w.ScheduleWithFixedDelay(initial, j.period, j.run, opts...)
		return err
	}
	j.kind = "job at a fixed rate"
	missed := pick(timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay)
	j.job, err = w.ScheduleAtFixedRate(initial, j.period, j.run, append(opts, timingwheel.OnMissed(missed))...)
	return err
}

func (j *job) run() {
	l := j.life
	if l.mode.Load() != running {
		return // it was discarded
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
	l.soak.total.runs.Add(1)
	if due := j.first; !j.reset.Load() {
		if !j.delay {
			due += time.Duration(runs-1) * j.period
		}
		l.notEarly(j.kind, l.soak.now(), due)
	}
	if rand.IntN(50) == 0 {
		<-j.ready
		j.job.Stop()
	}
	l.misbehave(nil)
}

// ended checks a job that has been stopped: no run began after Stop.
func (j *job) ended() {
	l, runs := j.life, j.job.Runs()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := j.job.StopWait(ctx); err != nil {
		l.violate("%s: StopWait: %v\n%s", j.kind, err, stacks())
		return
	}
	if j.running.Load() {
		l.violate("%s: runs after StopWait", j.kind)
	}
	if n := j.runs.Load(); n != runs || j.job.Runs() != runs {
		l.violate("%s: %d runs, %d when it was stopped, %d counted", j.kind, n, runs, j.job.Runs())
	}
	switch err := j.job.Err(); {
	case errors.Is(err, timingwheel.ErrCanceled), errors.Is(err, errOnPurpose) && !j.survives:
	case errors.Is(err, timingwheel.ErrStopped) && l.ending.begun.Load():
	default:
		l.violate("%s: ended by %v", j.kind, err)
	}
}
