package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// jobs are the recurring jobs on a wheel.
type jobs struct {
	life   *life
	checks sync.WaitGroup // of jobs that have been stopped

	mu   sync.Mutex
	jobs []*job // guarded by mu; those that have not been stopped
}

const mostJobs = 40 // at the same time, on one wheel

// call makes a new job, or makes a random call for one that exists.
func (js *jobs) call() {
	j := js.some()
	if j == nil {
		js.add()
		return
	}
	switch rand.IntN(4) {
	case 0:
		if js.stop(j) {
			js.checks.Go(j.ended)
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

// some returns one of the jobs, or nil if there is room for another.
func (js *jobs) some() *job {
	js.mu.Lock()
	defer js.mu.Unlock()
	if len(js.jobs) < mostJobs {
		return nil
	}
	return js.jobs[rand.IntN(len(js.jobs))]
}

// add makes a job. Jobs do not count against the limit of a wheel, so an ending wheel is
// the only reason to refuse one.
func (js *jobs) add() {
	l := js.life
	j := newJob(l)
	if err := j.schedule(l.delay()); err != nil {
		if !errors.Is(err, timingwheel.ErrStopped) || !l.ending.begun.Load() {
			l.violate("%s: refused without reason: %v", j.kind, err)
		}
		return
	}
	js.mu.Lock()
	defer js.mu.Unlock()
	js.jobs = append(js.jobs, j)
}

// stop stops j and removes it. It returns false if another call has removed it.
func (js *jobs) stop(j *job) bool {
	js.mu.Lock()
	i := slices.Index(js.jobs, j)
	if i >= 0 {
		js.jobs = slices.Delete(js.jobs, i, i+1)
	}
	js.mu.Unlock()
	j.job.Stop()
	return i >= 0
}

// finish stops and checks all jobs. The wheel must have been stopped, so that there are
// no new ones.
func (js *jobs) finish() {
	js.mu.Lock()
	left := slices.Clone(js.jobs)
	js.mu.Unlock()
	for _, j := range left {
		if js.stop(j) {
			j.ended()
		}
	}
	js.checks.Wait()
}

// job is a Job, and what its runs are checked against.
type job struct {
	life    *life
	kind    string
	job     *timingwheel.Job
	ready   chan struct{} // closed when job is set
	running atomic.Bool
	runs    atomic.Int64
	reset   atomic.Bool // the times of its runs are no longer known

	first, period time.Duration // of a job with a rate
	delay         bool          // the period counts from the end of a run
	survives      bool          // panics of its runs
	wall          atomic.Int64  // of a job on the calendar: its latest answer
	left          int           // of a job on the calendar: how many answers are left
}

func newJob(l *life) *job {
	return &job{
		life:   l,
		ready:  make(chan struct{}),
		period: time.Duration(1 + rand.IntN(1<<(15+rand.IntN(10)))),
		left:   rand.IntN(100),
	}
}

// schedule schedules j as a job of a random kind.
func (j *job) schedule(initial time.Duration) (err error) {
	defer close(j.ready)
	w := j.life.w
	missed := timingwheel.OnMissed(pick(timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay))
	opts := []timingwheel.JobOption{}
	if j.survives = rand.IntN(2) == 0; j.survives {
		opts = append(opts, timingwheel.SurvivePanics())
	}
	j.first = j.life.soak.now() + max(0, initial)
	switch rand.IntN(3) {
	case 0:
		j.kind = "job at a fixed rate"
		j.period = max(j.period, 100*time.Microsecond) // it makes up for every missed run
		j.job, err = w.ScheduleAtFixedRate(initial, j.period, j.run, append(opts, missed)...)
	case 1:
		j.kind, j.delay = "job with a fixed delay", true
		j.job, err = w.ScheduleWithFixedDelay(initial, j.period, j.run, opts...)
	default:
		j.kind, j.period = "job on the calendar", 0
		j.job, err = w.ScheduleFunc(j, j.run, append(opts, missed)...)
	}
	return err
}

// Next makes a job on the calendar its own Scheduler.
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
	j.checkTime(runs)
	if rand.IntN(50) == 0 {
		<-j.ready
		j.job.Stop()
	}
	l.misbehave(nil)
}

// checkTime checks that this run, which makes the runs so far that many, is not early.
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
	j.life.notEarly(j.kind, now, due)
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
	case err == nil:
		if j.period != 0 {
			l.violate("%s: ended without reason", j.kind)
		}
	case errors.Is(err, timingwheel.ErrCanceled), errors.Is(err, errOnPurpose) && !j.survives:
	case errors.Is(err, timingwheel.ErrStopped) && l.ending.begun.Load():
	default:
		l.violate("%s: ended by %v", j.kind, err)
	}
}
