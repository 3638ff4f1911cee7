package timingwheel

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/tickwheel/tickwheel/internal/wallclock"
)

// lookInterval is how often a job looks at the wall clock while it waits, where the system
// gives no notice when that is set: once a minute, as cron does.
const lookInterval = time.Minute

// calendarJobs are the jobs of a wheel that follow the wall clock, until they are over. While
// there are any, the wheel watches that clock, and each job waits for its time alone.
//
// Lock order: shard, calendarJobs.
type calendarJobs struct {
	watch func(f func(error)) (stop func(), err error) // nil: wallclock.Watch; tests put another in its place

	mu   sync.Mutex
	jobs map[looker]struct{} // guarded by mu
	stop func()              // ends the watch; nil: there is none; guarded by mu
}

// looker is a Job. As an interface, it links the Job only into programs that have one.
type looker interface{ lookAgain(look time.Duration) }

// add adds a job, and returns how long it may wait without a look at the wall clock. The
// caller holds the lock of the job's shard: so a notice reaches the job when it is armed.
func (c *calendarJobs) add(j looker) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil && !c.start() {
		return lookInterval
	}
	c.jobs[j] = struct{}{}
	return math.MaxInt64
}

// start begins the watch, and reports whether there is one. The watch does not keep the wheel.
func (c *calendarJobs) start() bool {
	watch := c.watch
	if watch == nil {
		watch = wallclock.Watch // here, so that it is linked only into programs that have such jobs
	}
	watched := weak.Make(c)
	stop, err := watch(func(err error) {
		if c := watched.Value(); c != nil {
			c.notice(err)
		}
	})
	if err != nil {
		return false
	}
	cleanup := runtime.AddCleanup(c, func(stop func()) { stop() }, stop)
	c.jobs, c.stop = map[looker]struct{}{}, func() { cleanup.Stop(); stop() }
	return true
}

// end ends the watch. It is called with the lock held.
func (c *calendarJobs) end() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// remove removes a job that is over. One that was never added makes no difference.
func (c *calendarJobs) remove(j looker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, j)
	if len(c.jobs) == 0 {
		c.end()
	}
}

// notice is told that the wall clock was set, or that no notice comes any more.
func (c *calendarJobs) notice(err error) {
	c.mu.Lock()
	all, look := slices.Collect(maps.Keys(c.jobs)), time.Duration(math.MaxInt64)
	if err != nil {
		look = lookInterval
		c.end()
	}
	c.mu.Unlock()
	for _, j := range all {
		j.lookAgain(look)
	}
}
