package timingwheel

import (
	"context"
	"math"
	"time"

	"github.com/tickwheel/tickwheel/internal/nocopy"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Job runs a function again and again, until it is stopped, its Scheduler has no further
// time, a run panics, or the wheel is stopped.
//
// The rules are those of the JDK's ScheduledThreadPoolExecutor. Runs of one job never
// overlap: the next is put on the wheel when the one before has ended, and sees all that
// it has done. So a job is never in the executor twice, and a slow job delays no other. A
// run that panics ends the job: with a [WithPanicHandler], Err tells why, and the handler
// is called; without one the program crashes. With [SurvivePanics] the job goes on. A run
// that ends its goroutine (runtime.Goexit) counts as ended like any other.
//
// All methods are safe for concurrent use, also from inside a run, and O(1). A Job must not be
// copied.
type Job struct {
	_ nocopy.Mark

	engine *engine.Engine
	entry  engine.Recurring
	task   func() // due
	done   chan struct{}

	jobConfig
	rate     *rate     // nil with a calendar
	calendar *calendar // nil with a rate

	// Guarded by the shard's lock, as is what rate and calendar change.
	f       func() // nil once the job is over
	running bool   // a run has begun, and has not yet planned the next
	ended   bool
	err     error
	runs    int64
}

// ScheduleAtFixedRate runs f first after the initial delay, and then every period. A
// negative initial delay counts as zero. The times are planned from the first one on, so
// the rate does not drift. Each run begins no earlier than planned, and as late as a
// function of [TimingWheel.Schedule].
//
// When a run takes longer than the period, or the process is paused, the next runs are
// late or are left out, as [OnMissed] says, but never overlap. By default they catch up.
// Planned times are not rounded to ticks: with a period shorter than a tick, several runs
// follow one another at each tick.
//
// Runs are tasks on the executor like any other. ScheduleAtFixedRate panics on a period
// that is not positive and on a nil function. It returns [ErrStopped] on a stopped wheel.
// O(1), for each run too.
func (w *TimingWheel) ScheduleAtFixedRate(initial, period time.Duration, f func(), opts ...JobOption) (*Job, error) {
	return w.scheduleRate("ScheduleAtFixedRate", initial, &rate{period: period}, f, opts)
}

// ScheduleWithFixedDelay runs f first after the initial delay, and then again and again,
// each time the given delay after the run before has ended. A negative initial delay
// counts as zero. No run can be missed, so [OnMissed] panics.
//
// Runs are tasks on the executor like any other. ScheduleWithFixedDelay panics on a delay
// that is not positive and on a nil function. It returns [ErrStopped] on a stopped wheel.
// O(1), for each run too.
func (w *TimingWheel) ScheduleWithFixedDelay(initial, delay time.Duration, f func(), opts ...JobOption) (*Job, error) {
	return w.scheduleRate("ScheduleWithFixedDelay", initial, &rate{period: delay, fromEnd: true}, f, opts)
}

func (w *TimingWheel) scheduleRate(name string, initial time.Duration, r *rate, f func(), opts []JobOption) (*Job, error) {
	j := w.newJob(name, f, opts)
	switch {
	case r.period <= 0 && r.fromEnd:
		panic("timingwheel: " + name + ": non-positive delay")
	case r.period <= 0:
		panic("timingwheel: " + name + ": non-positive period")
	case r.fromEnd && j.missedSet:
		panic("timingwheel: " + name + ": OnMissed does not apply, since a fixed delay misses no run")
	}
	j.rate = r
	now := j.engine.Clock().Now()
	r.planned = engine.Later(engine.Later(now, max(0, initial)), j.jitter)
	return j.start(now, r.planned-now)
}

// ScheduleFunc runs f at the times of a [Scheduler]. Next is first called with the
// present time. After each run it is called with the planned time of that run. If Next
// returns the zero time, the job ends with a nil Err. If it returns a time that is not
// after its argument, the job ends with an error; on the first call, ScheduleFunc returns
// the error. Planned times that have already passed are left out, unless [OnMissed] says
// otherwise. Next is called at most six times to leave them out, however many they are.
//
// The times are those of the wall clock, unlike everywhere else in this package. On Linux
// the system gives notice when that clock is set and when the machine resumes. A daily
// job then runs within milliseconds if its time has come, and otherwise waits again. For
// this the process has a goroutine and a file descriptor while there are such jobs,
// however many. On other systems, and where the descriptor is refused, the wheel reads
// the wall clock once a minute (or once a tick, if that is longer), and the job is late
// by at most as much.
//
// If the clock is set back by up to 90 minutes, the job waits until the first time after
// its last run: no time comes twice, and none is lost. A larger step back means that the
// clock was wrong. The job then goes on at the next time of the right clock, and
// times that came by the wrong clock come again. There is one exception: if only the
// last run would come again, and the run after it is more than twice as far off as the
// clock was set back, the last run counts. So a yearly job does not run again after a step
// of a day, and a daily job does. Several steps count together until the next run.
//
// Runs are tasks on the executor like any other. They are as late as a function of
// [TimingWheel.Schedule], and never early by the wall clock. ScheduleFunc panics on a nil
// Scheduler and on a nil function. It returns [ErrStopped] on a stopped wheel. O(1), plus
// the cost of Next.
func (w *TimingWheel) ScheduleFunc(s Scheduler, f func(), opts ...JobOption) (*Job, error) {
	if s == nil {
		panic("timingwheel: ScheduleFunc: nil Scheduler")
	}
	j := w.newJob("ScheduleFunc", f, append([]JobOption{OnMissed(MissedSkip)}, opts...))
	e := w.engine()
	if e.IsClosed() {
		return nil, ErrStopped
	}
	a := w.attachment()
	c := &calendar{scheduler: s, jitter: j.jitter, wall: a.wall, wheel: j.engine.Clock().Now, look: lookInterval}
	j.calendar = c
	var err error
	if c.plan, err = c.first(); err != nil {
		return nil, err
	}
	if c.planned.IsZero() {
		j.entry.Join(j.engine)
		defer j.entry.UnlockShard()
		j.end(nil)
		return j, nil
	}
	j.entry.Join(j.engine)
	defer j.entry.UnlockShard()
	switch {
	case j.entry.Closed():
		return nil, ErrStopped
	case e.Clock().IsManual():
		c.look = math.MaxInt64 // nobody sets this clock back or forward meanwhile
	case j.engine == e: // or else it is one of a bubble
		c.look = a.calendarJobs.add(j)
	}
	j.armCalendar()
	return j, nil
}

func (w *TimingWheel) newJob(name string, f func(), opts []JobOption) *Job {
	if f == nil {
		panic("timingwheel: " + name + ": nil function")
	}
	e, _ := w.here()
	j := &Job{engine: e, f: f, done: make(chan struct{})}
	j.task = j.due
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: " + name + ": nil JobOption")
		}
		opt(&j.jobConfig)
	}
	return j
}

// start puts the first run on the wheel.
func (j *Job) start(now, wait time.Duration) (*Job, error) {
	j.entry.Join(j.engine)
	defer j.entry.UnlockShard()
	if j.entry.Closed() {
		return nil, ErrStopped
	}
	j.arm(now, wait)
	return j, nil
}

// The caller of the methods that follow holds the shard's lock.

// arm puts the next run on the wheel, or the next look at the calendar.
func (j *Job) arm(now, wait time.Duration) {
	if j.entry.Closed() {
		j.end(ErrStopped)
		return
	}
	j.entry.Add(engine.Delay{Now: now, D: wait}, j.task, engine.Internal)
}

// armCalendar is arm for a job with a calendar. It reads the wall clock under the lock, so that
// a notice that comes later finds the job armed. It reads the wheel's clock after that, or the
// job would come due too early by what is between.
func (j *Job) armCalendar() {
	wait, _ := j.calendar.wait() // if isBehind is true, due finds it out
	j.calendar.seen = j.entry.Clock().Now()
	j.arm(j.calendar.seen, wait)
}

// due is the wheel's own task: it hands the run to the executor, or ends the job if the
// wheel was stopped first.
func (j *Job) due() {
	if j.entry.Closed() {
		j.end(ErrStopped)
		return
	}
	if j.calendar != nil {
		switch wait, isBehind := j.calendar.wait(); {
		case isBehind:
			j.entry.Execute((*jobPlan)(j)) // since Next is a user's
			return
		case wait > 0:
			j.armCalendar()
			return
		}
	}
	j.entry.Execute((*jobRun)(j))
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
		j.engine.Attached().(*attachment).calendarJobs.remove(j)
	}
	close(j.done)
}

// The methods that follow take the shard's lock themselves.

// jobRun is a Job as the task that the executor runs.
type jobRun Job

// Run runs the function. When it panics, run first ends the job, or plans the next run.
// Then the panic goes on to the handler, if there is one.
func (r *jobRun) Run() {
	j := (*Job)(r)
	f := j.begin(1)
	if f == nil {
		return
	}
	defer func() { // deferred, in case the run ends its goroutine
		failure := newPanicError(recover())
		if failure != nil {
			defer panic(failure.Value) // deferred, in case the Scheduler panics too
		}
		if failure == nil || j.survives {
			j.finish(true)
		} else {
			j.fail(failure)
		}
	}()
	f()
}

// Discard leaves the run out, and plans the next.
func (r *jobRun) Discard() (f func()) {
	j := (*Job)(r)
	if f = j.begin(0); f != nil {
		j.finish(true)
	}
	return f
}

// jobPlan is a Job as the task that plans the next run anew, since the wall clock was set back.
type jobPlan Job

func (p *jobPlan) Run() {
	if j := (*Job)(p); j.begin(0) != nil {
		j.finish(false)
	}
}

// Discard plans all the same: the job would stand still.
func (p *jobPlan) Discard() func() {
	p.Run()
	return nil
}

// begin returns the function if the run may begin, and adds runs to the count. Until then
// Stop wins.
func (j *Job) begin(runs int64) (f func()) {
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	if j.ended {
		return nil
	}
	j.running = true
	j.runs += runs
	return j.f
}

// finish plans the next run, now that one has ended (hasRun), or is not the next any more.
func (j *Job) finish(hasRun bool) {
	var next plan
	if j.calendar != nil {
		var err error
		if next, err = j.ask(hasRun); err != nil || next.planned.IsZero() {
			j.fail(err)
			return
		}
	}
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	j.running = false
	if j.ended {
		j.over()
		return
	}
	if j.calendar != nil {
		j.calendar.plan = next
		j.armCalendar()
	} else {
		now := j.entry.Clock().Now()
		j.arm(now, j.rate.next(now, j.missed))
	}
}

// lookAgain sets the time of the next run anew, since the wall clock was set. From now on the
// job waits for at most as long as look says before it looks at that clock.
func (j *Job) lookAgain(look time.Duration) {
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	j.calendar.look = look
	if j.entry.Pending() {
		wait, _ := j.calendar.wait()
		j.calendar.seen = j.entry.Clock().Now()
		j.entry.Reset(engine.Delay{Now: j.calendar.seen, D: wait})
	}
}

// ask asks the calendar for the next run. A Scheduler that panics or exits its goroutine
// ends the job, as a run would.
func (j *Job) ask(hasRun bool) (next plan, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if failure := newPanicError(recover()); failure != nil {
			j.fail(failure)
			panic(failure.Value)
		}
		j.fail(errGoexit)
	}()
	if hasRun {
		next, err = j.calendar.next(j.missed, j.hasEnded)
	} else {
		next, err = j.calendar.replan(j.hasEnded)
	}
	returned = true
	return next, err
}

func (j *Job) hasEnded() bool {
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	return j.ended
}

// fail ends the job after a run that is its last.
func (j *Job) fail(err error) {
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	j.running = false
	if j.ended {
		j.over()
	} else {
		j.end(err)
	}
}

// Stop ends the job and returns true, or returns false if the job has ended before. After
// Stop no run begins, not even one that waits in the executor's queue. Stop does not wait
// for a run that has begun, which may be the caller's own; StopWait does.
func (j *Job) Stop() bool {
	j.engine.Clock().CheckOutside()
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	if j.ended {
		return false
	}
	j.entry.Cancel()
	j.end(ErrCanceled)
	return true
}

// StopWait calls Stop, and then waits until a run that has begun has ended. It returns
// nil then, and context.Cause(ctx) if ctx ends first. A run of the job itself that calls
// StopWait waits until ctx ends, and so does a task that runs inline with it.
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

// Reset changes the period of a fixed rate, or the delay of a fixed delay. The next run
// is due a period from now, and the others follow from there. A run that has begun, or
// that waits in the executor's queue, goes on undisturbed. Reset returns false, and
// changes nothing, if the job has ended or follows a [Scheduler]. It panics on a period
// that is not positive.
func (j *Job) Reset(period time.Duration) bool {
	if period <= 0 {
		panic("timingwheel: Job.Reset: non-positive period")
	}
	now := j.engine.After(0).Now
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	if j.ended || j.rate == nil {
		return false
	}
	j.rate.period, j.rate.reset = period, now
	if j.entry.Reset(engine.Delay{Now: now, D: period}) {
		j.rate.planned = engine.Later(now, period)
	}
	return true
}

// Runs returns how many runs have begun.
func (j *Job) Runs() int64 {
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	return j.runs
}

// Next returns the planned time of the next run, which may wait in the executor's queue
// already. It returns false if no run is planned: the job has ended, or a run is under
// way, which plans the next when it ends.
func (j *Job) Next() (time.Time, bool) {
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	switch {
	case j.ended || j.running:
		return time.Time{}, false
	case j.calendar != nil:
		return j.calendar.planned, true
	default:
		return j.entry.Clock().At(j.rate.planned), true
	}
}

// Done returns a channel that is closed once the job and its last run have ended.
func (j *Job) Done() <-chan struct{} { return j.done }

// Err returns why the job has ended: [ErrCanceled] after Stop, [ErrStopped] with the
// wheel, a [*PanicError] after a panic, another error if the Scheduler went back in time
// or ended its goroutine, and nil if the Scheduler had no further time. Err also returns
// nil while the job goes on; Done tells the two apart.
func (j *Job) Err() error {
	j.entry.LockShard()
	defer j.entry.UnlockShard()
	return j.err
}
