package timingwheel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrCancelled is the error of a [Job] or [Future] that its Stop or Cancel ended.
var ErrCancelled = errors.New("timingwheel: cancelled")

// MissedPolicy says what becomes of the runs of a job whose planned times have
// passed when the run before has ended, because that took long or the process was
// paused. The policies are named after those of the Interval of Rust's tokio.
type MissedPolicy int

const (
	// MissedBurst catches up: the missed runs follow one another at once, one for each
	// planned time. The default of a fixed rate.
	MissedBurst MissedPolicy = iota

	// MissedSkip forgets the missed runs. The next is that of the first planned time
	// still to come, on the same grid. The default of ScheduleFunc.
	MissedSkip

	// MissedDelay forgets the missed runs and starts the grid anew: the next is a
	// period from now, or what the Scheduler has after now.
	MissedDelay
)

// JobOption sets up a job.
type JobOption func(*Job)

// OnMissed sets what becomes of missed runs. It panics on a policy that is none; and
// ScheduleWithFixedDelay panics on it, since there nothing can be missed.
func OnMissed(p MissedPolicy) JobOption {
	if p < MissedBurst || p > MissedDelay {
		panic(fmt.Sprintf("timingwheel: OnMissed(%d): no such policy", int(p)))
	}
	return func(j *Job) { j.missed, j.missedSet = p, true }
}

// Job runs a function again and again, until it is stopped, its Scheduler has no
// further time, a run panics, or the wheel is stopped.
//
// The rules are those of the JDK's ScheduledThreadPoolExecutor. Runs of one job
// never overlap: the next is put on the wheel when the one before has ended, and
// sees all that it has done. So a job is never in the executor twice, and one that is
// slow keeps nobody waiting but itself. A run that panics ends the job: with a
// [WithPanicHandler] Err says why, and the handler is called; without one the program
// crashes. A run that ends its goroutine (runtime.Goexit) counts as ended like any
// other.
//
// All methods are safe for concurrent use, also from inside a run, and O(1).
type Job struct {
	wheel *TimingWheel
	shard *shard
	due   func() // expire, the wheel's own task
	done  chan struct{}

	missed    MissedPolicy
	missedSet bool
	rate      *rate     // nil with a calendar
	calendar  *calendar // nil with a rate

	// Guarded by shard.mu, as is what rate and calendar change.
	f       func() // nil once the job is over
	handle  handle
	running bool // a run has begun, and has not yet planned the next
	ended   bool
	err     error
	runs    int64
}

func (w *TimingWheel) newJob(name string, f func(), opts []JobOption) *Job {
	if f == nil {
		panic("timingwheel: " + name + ": nil function")
	}
	j := &Job{wheel: w, f: f, done: make(chan struct{})}
	j.due = j.expire
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: " + name + ": nil JobOption")
		}
		opt(j)
	}
	return j
}

// start puts the first run on the wheel.
func (j *Job) start(now, wait time.Duration) (*Job, error) {
	j.shard = j.wheel.lock()
	defer j.shard.mu.Unlock()
	if j.shard.closed {
		return nil, ErrStopped
	}
	j.arm(now, wait)
	return j, nil
}

// The methods that follow are called with shard.mu held.

// arm puts the next run on the wheel, or the next look at the calendar.
func (j *Job) arm(now, wait time.Duration) {
	if j.shard.closed {
		j.end(ErrStopped)
		return
	}
	j.handle = j.shard.add(delay{now, wait}, j.due, own)
}

// expire is the wheel's own task: it hands the run to the executor, or ends the
// job if the wheel was stopped before.
func (j *Job) expire() {
	s := j.shard
	if s.closed {
		j.end(ErrStopped)
		return
	}
	if j.calendar != nil {
		if wait := j.calendar.wait(); wait > 0 {
			j.arm(s.clock.now(), wait)
			return
		}
	}
	s.driver.expired.tasks = append(s.driver.expired.tasks, j)
}

// end ends the job, which must not have ended before.
func (j *Job) end(err error) {
	j.ended, j.err = true, err
	if !j.running {
		j.over()
	}
}

// over lets go of what a job that has ended does not need any more.
func (j *Job) over() {
	j.f = nil
	if j.calendar != nil {
		j.calendar.scheduler = nil
	}
	close(j.done)
}

// The methods that follow take shard.mu themselves.

// run is the task that the executor runs. A panic goes on to the handler, if
// there is one, when it has ended the job.
func (j *Job) run() {
	f := j.begin(1)
	if f == nil {
		return
	}
	defer func() { // deferred, in case the run ends its goroutine
		if failure := recovered(recover()); failure != nil {
			j.fail(failure)
			panic(failure.value)
		}
		j.finish()
	}()
	f()
}

// discard leaves the run out, and plans the next.
func (j *Job) discard() (f func()) {
	if f = j.begin(0); f != nil {
		j.finish()
	}
	return f
}

// begin returns the function if the run may begin, and counts it as so many: up to this
// instant Stop wins.
func (j *Job) begin(runs int64) (f func()) {
	j.shard.lock()
	defer j.shard.mu.Unlock()
	if j.ended {
		return nil
	}
	j.running = true
	j.runs += runs
	return j.f
}

// finish plans the next run, now that one has ended.
func (j *Job) finish() {
	var next time.Time
	if j.calendar != nil {
		var err error
		if next, err = j.ask(); err != nil || next.IsZero() {
			j.fail(err)
			return
		}
	}
	j.shard.lock()
	defer j.shard.mu.Unlock()
	j.running = false
	if j.ended {
		j.over()
		return
	}
	now := j.shard.clock.now()
	if j.calendar != nil {
		j.calendar.planned = next
		j.arm(now, j.calendar.wait())
	} else {
		j.arm(now, j.rate.next(now, j.missed))
	}
}

// ask asks the calendar for the next run. What a Scheduler does instead of
// returning, it does as a part of the run: the job ends.
func (j *Job) ask() (next time.Time, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if failure := recovered(recover()); failure != nil {
			j.fail(failure)
			panic(failure.value)
		}
		j.fail(errGoexit)
	}()
	next, err = j.calendar.next(j.missed, j.hasEnded)
	returned = true
	return next, err
}

func (j *Job) hasEnded() bool {
	j.shard.lock()
	defer j.shard.mu.Unlock()
	return j.ended
}

// fail ends the job after a run that is its last.
func (j *Job) fail(err error) {
	j.shard.lock()
	defer j.shard.mu.Unlock()
	j.running = false
	if j.ended {
		j.over()
	} else {
		j.end(err)
	}
}

// Stop ends the job and returns true, or false if it has ended before. After it
// returns no further run begins, not even one that the executor has in its queue
// already. It does not wait for a run that has begun, which may be the caller's own;
// StopWait does.
func (j *Job) Stop() bool {
	j.shard.lock()
	defer j.shard.mu.Unlock()
	if j.ended {
		return false
	}
	j.shard.cancel(j.handle)
	j.end(ErrCancelled)
	return true
}

// StopWait is Stop, and waits until a run that has begun is over. It returns nil
// then, and context.Cause(ctx) if ctx ends first. Called from the job's own run it
// waits until ctx ends; so does a task that runs inline with it.
func (j *Job) StopWait(ctx context.Context) error {
	j.Stop()
	select {
	case <-j.done:
		return nil
	default:
	}
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Runs returns how many runs have begun.
func (j *Job) Runs() int64 {
	j.shard.lock()
	defer j.shard.mu.Unlock()
	return j.runs
}

// Next returns the planned time of the run that is next, or that waits in the
// executor's queue; and false if there is none, because the job has ended or a run
// is under way, which plans the next when it is over.
func (j *Job) Next() (time.Time, bool) {
	j.shard.lock()
	defer j.shard.mu.Unlock()
	switch {
	case j.ended || j.running:
		return time.Time{}, false
	case j.calendar != nil:
		return j.calendar.planned, true
	default:
		return j.shard.clock.start.Add(j.rate.planned), true
	}
}

// Done returns a channel that is closed when the job has ended and its last run is
// over.
func (j *Job) Done() <-chan struct{} { return j.done }

// Err returns why the job has ended: [ErrCancelled] after Stop, [ErrStopped] with
// the wheel, an error with the value and the stack of a panic, one that tells that
// the Scheduler went back in time, or nil if it had no further time. While the job
// goes on Err returns nil, too; Done tells.
func (j *Job) Err() error {
	j.shard.lock()
	defer j.shard.mu.Unlock()
	return j.err
}
