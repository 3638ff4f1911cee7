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
// that called runs what has waited meanwhile, a slice at a time, and ends. So all but a
// slice stays pending until its turn has come: it can be canceled, and Stop hands it back.
//
// The invariant: an entry waits only while state is apart. Both sides hold mu: the driver
// when it makes an entry wait, and the goroutine of the call when it leaves apart. That
// goroutine leaves apart only once nothing waits.
//
// While a call is apart, the time at which each function begins is noted. So what is told
// of a call that takes long (heldUp, the log) is told of one function, and not of many
// short ones together. A call that is not apart yet is too short to matter. To read the
// clock there, for each function, would cost 38 ns more than the 15 ns that one takes.
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

	state atomic.Int32 // together, calling, apart
	since atomic.Int64 // see began; 0: there is no call
	mu    sync.Mutex   // lock order: shard, mu
	watch *time.Timer  // ends patience; the goroutine that calls uses it alone
	armed atomic.Bool  // expired will be called, or has just been
	slice []task       // what has waited; only the goroutine of a call that is apart uses it
	alarm *alarm       // of the call that is apart; nil: no such call, or no logger; guarded by mu
	noisy atomic.Bool  // the alarm has warned about the present function
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
	c.began()
	c.executor.execute(tasks, c.driver.runner)
}

// began notes the time: a call begins, or a function of a call that is apart. It is in
// real time since the wheel was made, in ns, and names what has begun.
func (c *caller) began() {
	c.since.Store(max(1, int64(c.driver.clock.real())))
	if c.noisy.Load() {
		c.quieten()
	}
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
		if c.slice = c.driver.takeWaiting(c.slice); len(c.slice) > 0 {
			c.execute(c.slice)
		}
	}
	return false
}

// part makes another goroutine the driver, its own.
func (c *caller) part() {
	if c.detach() {
		c.driver.live(func() { c.driver.loop() })
	}
}

// detach leaves the state calling for apart, and reports whether it did.
func (c *caller) detach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.CompareAndSwap(calling, apart) {
		return false
	}
	c.driver.runner.apart.Store(c)
	if c.driver.runner.log != nil {
		c.alarm = new(alarm)
		c.arrange(c.since.Load())
	}
	return true
}

// rejoin leaves the state apart if nothing waits any more, and reports whether it did.
func (c *caller) rejoin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.driver.waiting.Load() > 0 {
		return false
	}
	if c.alarm != nil {
		c.alarm.timer.Stop()
		c.alarm = nil
	}
	c.noisy.Store(false)
	c.driver.runner.apart.Store(nil)
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

// alarm warns about a call that is apart: after each of warnings, about the function that
// has gone on for as long. While short functions follow one another, it looks at one of
// them each second. It is guarded by mu.
type alarm struct {
	timer  *time.Timer
	warned int   // how often about the present one
	since  int64 // names the present one
}

// arrange has the alarm look when the next warning is due about what began at since. It
// is called with mu held.
func (c *caller) arrange(since int64) {
	a := c.alarm
	if a.timer != nil {
		a.timer.Stop()
	}
	if since == 0 || since != a.since {
		a.since, a.warned = since, 0
	}
	if a.warned == len(warnings) {
		return // until quieten
	}
	wait := warnings[a.warned]
	if since != 0 {
		wait -= c.driver.clock.real() - time.Duration(since)
	}
	a.timer = time.AfterFunc(wait, func() { c.ring(a) })
}

// quieten is called when a function begins after one about which the alarm has warned.
func (c *caller) quieten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noisy.Store(false)
	if c.alarm != nil {
		c.arrange(c.since.Load())
	}
}

// ring runs on the alarm's goroutine, where the logger can hold up nobody.
func (c *caller) ring(a *alarm) {
	held, by, due := c.due(a)
	if due {
		c.driver.runner.log.Warn("timingwheel: the executor holds the driver up", "for", held, "by", by)
	}
}

// due arranges for the next look of the alarm, and reports whether it has to warn now.
func (c *caller) due(a *alarm) (held time.Duration, by string, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a != c.alarm {
		return 0, "", false // the call has returned meanwhile
	}
	since := c.since.Load()
	held, by = c.present()
	if held >= warnings[a.warned] {
		due = true
		a.warned++
		c.noisy.Store(true)
	}
	c.arrange(since)
	return held, by, due
}

// heldUp returns for how long the present call has gone on, or the present function of a
// call that is apart; zero if there is none.
func (c *caller) heldUp() time.Duration {
	since := time.Duration(c.since.Load())
	if since == 0 {
		return 0
	}
	return max(0, c.driver.clock.real()-since)
}

// present returns heldUp, and by what. The two are of the same function.
func (c *caller) present() (held time.Duration, by string) {
	for {
		since := c.since.Load()
		if held = c.heldUp(); held == 0 {
			return 0, ""
		}
		if by = c.culprit(); c.since.Load() == since {
			return held, by
		}
	}
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
