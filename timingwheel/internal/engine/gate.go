package engine

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// gate stands between the wheel and an executor that cannot take every task at once. An
// entry that does not get through stays pending: it waits on its shard, in the order in which it
// came due. The handoff is a gate, and so is admissionGate. The default executor has none.
type gate interface {
	// lets reports whether all entries of the present slice may pass, so that hold need not
	// be called; false if that is not known for all. The driver calls it before a slice, with
	// s.mu held: hold took 34 of the 600 instructions of firing an entry inline.
	lets() bool

	// hold decides about an entry that is due and in no bucket. Either it makes the entry
	// wait (shard.wait), and returns true. Or it takes room for one task, and returns false;
	// never while another of the shard waits. The caller holds s.mu.
	hold(s *shard, i bucket.Index) bool
}

// admissionGate is the gate of an executor with an admission.
type admissionGate struct{ *hub }

func (g admissionGate) lets() bool { return false } // there may be room for some of the tasks only

func (g admissionGate) hold(s *shard, i bucket.Index) bool {
	if g.admission.TryAcquire() {
		return false
	}
	s.wait(i)
	g.admission.Join(g.host)
	return true
}

// handoff calls the executor, on the driver's goroutine, one call at a time.
//
// Under Inline, a full Pool or an executor of the user's own, a call may run a user's
// function that takes long. Channels, tickers and contexts must not wait for it. So a
// call that takes longer than patience is detached: the goroutine keeps the call, and
// another goroutine drives on. Until the call returns, entries that come due for the executor
// wait on their shards, in order, pending as before. Then the goroutine that called runs
// those that have waited meanwhile, a slice at a time, and ends. So all but a slice can be
// canceled until its turn has come, and Stop hands it back.
//
// The invariant: an entry waits only while the state is detached. Both sides hold mu: the
// driver when it makes an entry wait, and the goroutine of the call when it leaves that
// state. That goroutine leaves it only once nothing waits.
//
// Rejected: a goroutine for the calls, besides the driver. It would cost Inline a
// hand-over for each batch. The watch costs 60 to 100 ns to arm and stop the timer,
// sometimes the wake-up of a processor, and 3 ns a task to note the function.
type handoff struct {
	hub      *hub
	executor run.Executor
	patience time.Duration // how long a call may hold up the driver

	state atomic.Int32 // idle, calling, detached
	began run.Stopwatch
	mu    sync.Mutex    // lock order: shard, mu
	watch *time.Timer   // ends patience; the goroutine that calls uses it alone
	armed atomic.Bool   // patienceEnds will be called, or has just been
	slice []run.Task    // what has waited; only the goroutine of a detached call uses it
	over  chan struct{} // closed when the detached call returns; nil: none, or no logger; guarded by mu
}

const (
	idle     = iota // nobody is in the executor, and the driver's goroutine will be the next
	calling         // the driver's goroutine is in the executor
	detached        // a goroutine is in the executor that no longer drives
)

// call hands tasks to the executor. It reports false if another goroutine drives on.
func (h *handoff) call(tasks []run.Task) (driving bool) {
	many := len(tasks) == SliceLen
	h.state.Store(calling) // before the look at armed, see patienceEnds
	h.arm()
	h.execute(tasks)
	if !h.returned() {
		return false
	}
	h.hub.runner.Tracer.Label() // again: tasks that ran here had labels of their own
	if !many {
		h.watch.Stop()
		h.armed.Store(false)
	}
	return true
}

// arm arms the watch, unless it is armed. After a full slice it still is, since more will
// follow. To arm it may wake up a processor, which finds nothing to do: with one for each
// slice, 1 M functions within a second took 1.07 of what they take now, inline.
func (h *handoff) arm() {
	if h.armed.Load() {
		return
	}
	h.armed.Store(true)
	if h.watch == nil {
		h.watch = time.AfterFunc(h.patience, h.patienceEnds)
	} else {
		h.watch.Reset(h.patience)
	}
}

// patienceEnds is called when the watch has expired. The present call may have begun after the
// watch was armed: then it waits for what is left of the call's patience. Otherwise it
// detaches the call, and makes its own goroutine the driver.
//
// No call is without a watch. Either a call finds armed false, and arms the watch. Or it
// finds armed true before patienceEnds makes it false, and then patienceEnds finds the call.
func (h *handoff) patienceEnds() {
	h.armed.Store(false)
	if h.state.Load() != calling {
		return
	}
	if left := h.patience - h.began.Elapsed(h.began.Since.Load()); left > 0 {
		h.armed.Store(true)
		time.AfterFunc(left, h.patienceEnds) // the watch is the driver's
		return
	}
	if h.detach() {
		h.hub.host.driveOn()
	}
}

func (h *handoff) execute(tasks []run.Task) {
	defer h.began.Stop() // deferred, since a task may end the goroutine, or panic under Drive
	h.began.Start()
	h.executor.ExecuteTasks(tasks, h.hub.runner)
}

// returned is called when a call has returned, or a task has ended its goroutine, and
// reports whether the goroutine may drive. If not, it has run all that waited.
func (h *handoff) returned() (driving bool) {
	if h.state.CompareAndSwap(calling, idle) {
		return true
	}
	for !h.rejoin() {
		if h.slice = h.hub.host.takeWaiting(h.slice); len(h.slice) > 0 {
			h.execute(h.slice)
		}
	}
	return false
}

// detach leaves the state calling for detached, and reports whether it did.
func (h *handoff) detach() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.state.CompareAndSwap(calling, detached) {
		return false
	}
	h.hub.runner.Detached.Store(&h.began)
	if h.hub.runner.Log != nil {
		h.over = make(chan struct{})
		go h.warn(h.over)
	}
	return true
}

// rejoin leaves the state detached if nothing waits any more, and reports whether it did.
func (h *handoff) rejoin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hub.numWaiting.Load() > 0 {
		return false
	}
	if h.over != nil {
		close(h.over)
		h.over = nil
	}
	h.hub.runner.Detached.Store(nil)
	h.state.Store(idle)
	return true
}

// lets implements gate. Nothing waits while nobody is in the executor. And only the driver
// goes there, after the slice.
func (h *handoff) lets() bool { return h.state.Load() != detached }

// hold implements gate: while a detached call goes on, what comes due waits for its end.
func (h *handoff) hold(s *shard, i bucket.Index) bool {
	if h.lets() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lets() {
		return false
	}
	s.wait(i)
	return true
}

// warnings is after how long a function is logged that has not returned.
var warnings = [...]time.Duration{time.Second, 10 * time.Second, time.Minute}

// warn warns about the functions of a detached call until it is over, on a goroutine of its
// own, where the logger can hold up nobody. It looks each second which function it is, and
// when the next warning is due. So it finds each one in its first second.
func (h *handoff) warn(over <-chan struct{}) {
	var last int64 // when the function began that was seen last
	warned := 0    // how often about that one
	for {
		held, by, since := h.present()
		if since != last {
			last, warned = since, 0
		}
		wait := time.Second
		if warned < len(warnings) {
			wait = min(wait, warnings[warned]-held)
		}
		if wait <= 0 {
			warned++
			h.hub.runner.Log.Warn("timingwheel: the executor holds the driver up", "for", held, "by", by)
			continue
		}
		select {
		case <-over:
			return
		case <-time.After(wait):
		}
	}
}

// present returns for how long the present call has held the driver up, or the present
// function of a detached one, by what, and since when, all of the same; zero if there is none.
func (h *handoff) present() (held time.Duration, by string, since int64) {
	for {
		since = h.began.Since.Load()
		if held = h.began.Elapsed(since); held == 0 {
			return 0, "", 0
		}
		if by = h.culprit(); h.began.Since.Load() == since {
			return held, by, since
		}
	}
}

// culprit names what the present call is busy with, as far as that is known: the function
// that runs on the driver, or the executor.
func (h *handoff) culprit() string {
	if f := runtime.FuncForPC(uintptr(h.hub.runner.Code.Load())); f != nil {
		return f.Name()
	}
	return run.NameOf(h.executor)
}

// Entries that are due and cannot pass the gate wait on their shard. They are pending as
// before, in the order in which they came due.

// wait makes an entry that is due and in no bucket wait at the gate.
func (s *shard) wait(i bucket.Index) {
	s.leaveLevel(i)
	if !s.waiting.IsOpen() {
		s.waiting.Open(&s.arena, 0)
		s.waitsSince.Store(s.arena.Deadline(i))
	}
	s.waiting.Append(&s.arena, i)
	s.enterLevel(i, levelWaiting)
	s.hub.numWaiting.Add(1)
}

// takeWaiting fires up to so many entries that wait at the gate into out, and returns how many.
func (s *shard) takeWaiting(out *dueTasks, most int) (n int) {
	s.lock()
	defer s.unlock()
	if s.stopped || !s.waiting.IsOpen() {
		return 0
	}
	s.out = out
	now, before := s.clock.Now(), len(out.tasks)
	late := latenessRun{of: &s.history.lateness}
	i := s.waiting.First(&s.arena)
	for ; i != 0 && n < most; i = s.waiting.First(&s.arena) {
		n++
		s.arena.Unlink(i)
		late.record(s.arena.Deadline(i), s.clock, now)
		s.fire(i)
	}
	late.done()
	s.passed(before)
	if i != 0 {
		s.waitsSince.Store(s.arena.Deadline(i))
		return n
	}
	s.waiting.Close(&s.arena)
	s.waitsSince.Store(math.MaxInt64)
	return n
}
