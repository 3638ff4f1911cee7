package timingwheel

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
)

// caller calls the executor, on the driver's goroutine, one call at a time.
//
// Under Inline, a full Pool or an executor of the user's own, a call may run a user's
// function that takes long. Channels, tickers and contexts must not wait for it. So a
// call that takes longer than patience parts from the driver: the goroutine keeps the
// call, and another goroutine drives on. Until the call returns, what comes due for the
// executor waits on its shard, in order, and is pending as before. Then the goroutine
// that called runs what has waited meanwhile, and ends.
//
// The invariant: an entry waits only while state is apart. Both sides hold mu: the driver
// when it makes an entry wait, and the goroutine of the call when it leaves apart. That
// goroutine leaves apart only once nothing waits.
//
// Rejected: a goroutine for the calls, besides the driver. It would cost Inline a
// hand-over for each batch. The watch costs less: 60 to 100 ns to arm and stop the timer,
// and sometimes the wake-up of a processor, for a tick or so; and 3 ns a task to note the
// function.
type caller struct {
	driver   *driver
	executor ownExecutor
	mayBlock bool // the executor may run a user's function
	watched  bool // it may, and the driver is a goroutine of ours
	patience time.Duration

	state atomic.Int32  // together, calling, apart
	since atomic.Int64  // when the present call began, in real time since the wheel was made, in ns; 0: none
	calls atomic.Uint64 // names the present call
	mu    sync.Mutex    // lock order: shard, mu
	watch *time.Timer   // ends patience; the goroutine that calls uses it alone
	armed atomic.Bool   // expired will be called, or has just been
	alarm *time.Timer   // logs; guarded by mu
}

const (
	together = iota // nobody is in the executor, and the driver's goroutine will be the next
	calling         // the driver's goroutine is in the executor
	apart           // a goroutine is in the executor that no longer drives
)

// patience is how long a call may hold up the driver.
const patience = time.Millisecond

// warnings is after how long a call is logged that has not returned.
var warnings = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// call hands tasks to the executor. It reports false if another goroutine drives on.
func (c *caller) call(tasks []task) (driving bool) {
	if !c.mayBlock {
		c.executor.execute(tasks, c.driver.runner)
		return true
	}
	if !c.watched {
		c.execute(tasks)
		return true
	}
	many := len(tasks) == sliceLen
	c.state.Store(calling) // before the look at armed, see expired
	c.arm()
	c.execute(tasks)
	if driving = c.returned(); driving {
		c.driver.runner.tracer.label() // again: tasks that ran here had labels of their own
		if !many {
			c.disarm()
		}
	}
	return driving
}

// arm arms the watch, unless it is armed. After a full slice it still is, since more will
// follow. To arm it may wake up a processor, which finds nothing to do: with one for each
// slice, 1 M functions within a second took 1.07 of what they take now, inline.
func (c *caller) arm() {
	switch {
	case c.armed.Load():
		return
	case c.watch == nil:
		c.armed.Store(true)
		c.watch = time.AfterFunc(c.patience, c.expired)
	default:
		c.armed.Store(true)
		c.watch.Reset(c.patience)
	}
}

func (c *caller) disarm() {
	c.watch.Stop()
	c.armed.Store(false)
}

// expired is called when the watch has expired. The present call may have begun after the
// watch was armed: then expired waits for what is left of its patience.
//
// No call is without a watch. Either a call finds armed false, and arms the watch. Or it
// finds armed true before expired makes it false, and then expired finds the call.
func (c *caller) expired() {
	c.armed.Store(false)
	if c.state.Load() != calling {
		return
	}
	if left := c.patience - c.heldUp(); left > 0 {
		c.armed.Store(true)
		time.AfterFunc(left, c.expired) // the watch is the driver's
		return
	}
	c.part()
}

func (c *caller) execute(tasks []task) {
	defer c.since.Store(0) // deferred, since a task may end the goroutine, or panic under Drive
	call := c.calls.Add(1)
	c.since.Store(max(1, int64(c.driver.clock.real())))
	if c.state.Load() == apart {
		c.warnAfter(0, call)
	}
	c.executor.execute(tasks, c.driver.runner)
}

// returned is called when a call has returned, or a task has ended its goroutine. It
// reports whether the goroutine may drive. If it may not, returned has run all that
// waited for the executor.
func (c *caller) returned() (driving bool) {
	if c.state.CompareAndSwap(calling, together) {
		return true
	}
	if c.state.Load() == together {
		return true // a task ended the goroutine under an executor that is not watched
	}
	for !c.rejoin() {
		if tasks := c.driver.takeWaiting(); len(tasks) > 0 {
			c.execute(tasks)
		}
	}
	return false
}

// part makes another goroutine the driver, its own.
func (c *caller) part() {
	if c.state.CompareAndSwap(calling, apart) {
		c.warnAfter(0, c.calls.Load())
		c.driver.live(func() { c.driver.loop() })
	}
}

// rejoin leaves the state apart if nothing waits any more, and reports whether it did.
func (c *caller) rejoin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alarm != nil {
		c.alarm.Stop()
		c.alarm = nil
	}
	if c.driver.waiting.Load() > 0 {
		return false
	}
	c.state.Store(together)
	return true
}

// lets implements gate. Nothing waits while nobody is in the executor. And only the driver
// goes there, after the slice.
func (c *caller) lets() bool { return c.state.Load() != apart }

// hold implements gate: while a call goes on apart, what comes due waits for its end.
func (c *caller) hold(s *shard, i bucket.Index) bool {
	if c.state.Load() != apart {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() != apart {
		return false
	}
	s.wait(i)
	return true
}

func (c *caller) claim() bool            { return true }
func (c *caller) unclaim()               {}
func (c *caller) pass(*expired, *runner) {}
func (c *caller) look(*driver)           {}
func (c *caller) leave(*driver)          {}

// warnAfter arms the alarm for the nth warning about a call.
func (c *caller) warnAfter(n int, call uint64) {
	if c.driver.runner.log == nil || n == len(warnings) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() == apart && c.calls.Load() == call {
		c.alarm = time.AfterFunc(warnings[n]-c.heldUp(), func() { c.warn(n, call) })
	}
}

// warn runs on the alarm's goroutine, where the logger can hold up nobody.
func (c *caller) warn(n int, call uint64) {
	held := c.heldUp()
	if held == 0 || c.calls.Load() != call {
		return
	}
	c.driver.runner.log.Warn("timingwheel: the executor holds the driver up", "for", held, "by", c.culprit())
	c.warnAfter(n+1, call)
}

// heldUp returns for how long the present call has gone on; zero if there is none.
func (c *caller) heldUp() time.Duration {
	since := time.Duration(c.since.Load())
	if since == 0 {
		return 0
	}
	return max(0, c.driver.clock.real()-since)
}

// culprit names what the present call is busy with, as far as that is known: the function
// that runs on the driver, or the executor.
func (c *caller) culprit() string {
	if f := runtime.FuncForPC(uintptr(c.driver.runner.inline.Load())); f != nil {
		return f.Name()
	}
	switch e := c.executor.(type) {
	case foreign:
		return fmt.Sprintf("%T", e.Executor)
	case inline:
		return "Inline"
	default:
		return "Pool"
	}
}
