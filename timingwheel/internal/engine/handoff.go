package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Handoff calls the executor, on the driver's goroutine, one call at a time.
//
// Under Inline, a full Pool or an executor of the user's own, a call may run a user's
// function that takes long. Channels, tickers and contexts must not wait for it. So a
// call that takes longer than patience is detached: the goroutine keeps the call, and
// another goroutine drives on. Until the call returns, what comes due for the executor
// waits on its shard, in order, pending as before. Then the goroutine that called runs
// what has waited meanwhile, a slice at a time, and ends. So all but a slice can be
// canceled until its turn has come, and Stop hands it back.
//
// The invariant: an entry waits only while the state is detached. Both sides hold mu: the
// driver when it makes an entry wait, and the goroutine of the call when it leaves that
// state. That goroutine leaves it only once nothing waits.
//
// Rejected: a goroutine for the calls, besides the driver. It would cost Inline a
// hand-over for each batch. The watch costs less: 60 to 100 ns to arm and stop the timer,
// and sometimes the wake-up of a processor, for a tick or so; and 3 ns a task to note the
// function.
type Handoff struct {
	hub      *Hub
	executor run.Executor
	Patience time.Duration // how long a call may hold up the driver

	State atomic.Int32 // idle, calling, detached
	Began run.Stopwatch
	Mu    sync.Mutex  // lock order: shard, mu
	watch *time.Timer // ends patience; the goroutine that calls uses it alone
	Armed atomic.Bool // expired will be called, or has just been
	slice []run.Task  // what has waited; only the goroutine of a detached call uses it
	Alarm *Alarm      // of the detached call; nil: none, or no logger; guarded by mu
}

const (
	Idle     = iota // nobody is in the executor, and the driver's goroutine will be the next
	Calling         // the driver's goroutine is in the executor
	Detached        // a goroutine is in the executor that no longer drives
)

// call hands tasks to the executor. It reports false if another goroutine drives on.
func (h *Handoff) call(tasks []run.Task) (driving bool) {
	if h.hub.manual {
		h.execute(tasks)
		return true
	}
	many := len(tasks) == SliceLen
	h.State.Store(Calling) // before the look at armed, see expired
	h.arm()
	h.execute(tasks)
	if !h.Returned() {
		return false
	}
	h.hub.runner.Tracer.Label() // again: tasks that ran here had labels of their own
	if !many {
		h.watch.Stop()
		h.Armed.Store(false)
	}
	return true
}

// arm arms the watch, unless it is armed. After a full slice it still is, since more will
// follow. To arm it may wake up a processor, which finds nothing to do: with one for each
// slice, 1 M functions within a second took 1.07 of what they take now, inline.
func (h *Handoff) arm() {
	if h.Armed.Load() {
		return
	}
	h.Armed.Store(true)
	if h.watch == nil {
		h.watch = time.AfterFunc(h.Patience, h.PatienceEnds)
	} else {
		h.watch.Reset(h.Patience)
	}
}

// PatienceEnds is called when the watch has expired. The present call may have begun after the
// watch was armed: then expired waits for what is left of its patience. Otherwise it
// detaches the call, and makes its own goroutine the driver.
//
// No call is without a watch. Either a call finds armed false, and arms the watch. Or it
// finds armed true before expired makes it false, and then expired finds the call.
func (h *Handoff) PatienceEnds() {
	h.Armed.Store(false)
	if h.State.Load() != Calling {
		return
	}
	if left := h.Patience - h.Began.Elapsed(h.Began.Since.Load()); left > 0 {
		h.Armed.Store(true)
		time.AfterFunc(left, h.PatienceEnds) // the watch is the driver's
		return
	}
	if h.Detach() {
		h.hub.host.driveOn()
	}
}

func (h *Handoff) execute(tasks []run.Task) {
	defer h.Began.Stop() // deferred, since a task may end the goroutine, or panic under Drive
	h.Began.Start()
	h.executor.ExecuteTasks(tasks, h.hub.runner)
}

// Returned is called when a call has returned, or a task has ended its goroutine. It
// reports whether the goroutine may drive. If it may not, returned has run all that
// waited for the executor.
func (h *Handoff) Returned() (driving bool) {
	if h.State.CompareAndSwap(Calling, Idle) || h.State.Load() == Idle { // idle under Drive
		return true
	}
	for !h.Rejoin() {
		if h.slice = h.hub.host.takeWaiting(h.slice); len(h.slice) > 0 {
			h.execute(h.slice)
		}
	}
	return false
}

// Detach leaves the state calling for detached, and reports whether it did.
func (h *Handoff) Detach() bool {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if !h.State.CompareAndSwap(Calling, Detached) {
		return false
	}
	h.hub.runner.Detached.Store(&h.Began)
	if h.hub.runner.Log != nil {
		a := new(Alarm)
		h.Alarm = a
		a.Timer = time.AfterFunc(warnings[0]-h.Began.Elapsed(h.Began.Since.Load()), func() { h.Ring(a) })
	}
	return true
}

// Rejoin leaves the state detached if nothing waits any more, and reports whether it did.
func (h *Handoff) Rejoin() bool {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if h.hub.Waiting.Load() > 0 {
		return false
	}
	if h.Alarm != nil {
		h.Alarm.Timer.Stop()
		h.Alarm = nil
	}
	h.hub.runner.Detached.Store(nil)
	h.State.Store(Idle)
	return true
}

// lets implements gate. Nothing waits while nobody is in the executor. And only the driver
// goes there, after the slice.
func (h *Handoff) lets() bool { return h.State.Load() != Detached }

// Hold implements gate: while a detached call goes on, what comes due waits for its end.
func (h *Handoff) Hold(s *Shard, i bucket.Index) bool {
	if h.lets() {
		return false
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if h.lets() {
		return false
	}
	s.Wait(i)
	return true
}

// warnings is after how long a function is logged that has not returned.
var warnings = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// Alarm warns about the functions of a detached call. Each second it looks which function
// it is, and when the next warning is due. So it finds each one in its first second. It
// is guarded by mu.
type Alarm struct {
	Timer  *time.Timer
	since  int64 // when the function began that it has seen last
	warned int   // how often about that one
}

// Ring runs on the alarm's goroutine, where the logger can hold up nobody.
func (h *Handoff) Ring(a *Alarm) {
	if held, by, due := h.Due(a); due {
		h.hub.runner.Log.Warn("timingwheel: the executor holds the driver up", "for", held, "by", by)
	}
}

// Due reports whether the alarm has to warn now, and sets it for the next look.
func (h *Handoff) Due(a *Alarm) (held time.Duration, by string, due bool) {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if a != h.Alarm {
		return 0, "", false // the call has returned meanwhile
	}
	held, by, since := h.Present()
	if since != a.since {
		a.since, a.warned = since, 0
	}
	wait := time.Second
	if a.warned < len(warnings) {
		if due = held >= warnings[a.warned]; due {
			a.warned++
		} else {
			wait = min(wait, warnings[a.warned]-held)
		}
	}
	a.Timer.Reset(wait)
	return held, by, due
}

// Present returns for how long the present call has held the driver up, or the present
// function of a detached one, by what, and since when; zero if there is none. All are of
// the same function.
func (h *Handoff) Present() (held time.Duration, by string, since int64) {
	for {
		since = h.Began.Since.Load()
		if held = h.Began.Elapsed(since); held == 0 {
			return 0, "", 0
		}
		if by = h.culprit(); h.Began.Since.Load() == since {
			return held, by, since
		}
	}
}

// culprit names what the present call is busy with, as far as that is known: the function
// that runs on the driver, or the executor.
func (h *Handoff) culprit() string {
	if f := runtime.FuncForPC(uintptr(h.hub.runner.Code.Load())); f != nil {
		return f.Name()
	}
	return run.NameOf(h.executor)
}
