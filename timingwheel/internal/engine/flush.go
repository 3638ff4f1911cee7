package engine

import (
	"math"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// The flush of a bucket: its entries go back through add, slice by slice, so that they
// cascade down to a finer wheel, or fire. The driver calls it.

// SliceLen is how many entries of a cascade are flushed before the lock is released: 256
// at 25 to 50 ns each make about 10 us.
const SliceLen = 256

// dueTasks is all that the flush of a slice has found to be due. handOver empties it before the
// next slice.
type dueTasks struct {
	tasks    []run.Task    // for the executor
	internal []run.Task    // for a run queue of the wheel's own, which no user's function can block
	held     bool          // something waits at the gate, or has given its room back
	late     time.Duration // the most by which one was late that fired; -1 if none did
}

// history is what a shard remembers of what was flushed. It is apart from the shard, which
// would have almost twice the size with it, also where nothing was ever added.
type history struct {
	lateness Histogram
	cascaded [levels]int64 // entries that have left the level for a finer one
}

// makeHistory makes the history when it is first needed.
func (s *shard) makeHistory() {
	if s.history == nil {
		s.history = new(history)
	}
}

// expire begins the cascade of a bucket that the driver has taken from the queue, and
// flushes its first slice. No cascade of the same level may be under way.
//
// The clocks advance before the entries are added again, or these would return to the bucket
// they came from. The clocks advance to the bucket's expiration only, never to now, or an
// entry added later could overtake one that waits in a coarser bucket. The lock is not
// released meanwhile, or an entry added in between could overtake those of its tick.
func (s *shard) expire(b *slot, out *dueTasks) (more bool) {
	s.lockForFlush()
	defer s.unlock()
	if s.stopped {
		return false
	}
	s.out = out
	b.cascade.openBuckets--
	s.makeHistory()
	if s.fairness.entered == nil {
		s.fairness.entered = make(chan struct{}, 1)
	}
	if s.finest != nil {
		s.advance(b.Expiration())
	}
	b.MoveTo(&s.arena, &b.cascade.ring)
	return s.flushSlice(b.cascade)
}

// flush goes on with a cascade: it adds a slice of the entries to the wheels again, fires
// those that are due, and reports whether entries are left.
func (s *shard) flush(c *cascade, out *dueTasks) (more bool) {
	s.relockForDriver()
	defer s.unlock()
	if s.stopped {
		return false
	}
	s.out = out
	return s.flushSlice(c)
}

// flushSlice puts entries of a cascade back on the wheels, most of them on a finer level. It
// fires those that are due, unless the gate holds them. It is called with s.mu held.
func (s *shard) flushSlice(c *cascade) (more bool) {
	now, before := s.clock.Now(), len(s.out.tasks)
	s.hub.lateHint.next(now)
	late := latenessRun{of: &s.history.lateness}
	gated := s.hub.gate != nil && !s.hub.gate.lets()
	for range SliceLen {
		i := c.ring.TakeFirst(&s.arena)
		if i == 0 {
			break
		}
		deadline, tag := s.arena.Deadline(i), s.arena.Tag(i)
		due := c.allDue
		if isLazy(tag) {
			deadline, due = s.isLazyDue(i, c)
		} else if !due {
			due = !s.addAgain(i, deadline)
		}
		if !due {
			level := tag >> levelShift
			s.entries[level]--
			if s.arena.Tag(i)>>levelShift < level { // or else it was pushed back
				s.history.cascaded[level]++
			}
			continue
		}
		if gated && needsExecutor(tag) && s.hub.gate.hold(s, i) {
			s.out.held = true
			continue
		}
		late.record(deadline, s.clock, now)
		s.fire(i)
	}
	s.out.late = max(s.out.late, late.done())
	s.passed(before)
	s.tidy(SliceLen)
	if c.ring.First(&s.arena) != 0 {
		return true
	}
	c.ring.Close(&s.arena)
	return false
}

// addAgain adds an entry of a cascade to the wheels, and reports false if it is due.
func (s *shard) addAgain(i bucket.Index, deadline int64) bool {
	b, level := s.finest.find(deadline)
	if b == nil {
		return false
	}
	b.Append(&s.arena, i)
	s.enterLevel(i, level)
	return true
}

// isLazyDue returns the deadline of an entry of a cascade that has a LazyTask, and
// reports whether the entry is due. If it is not, isLazyDue adds it to the wheels again.
func (s *shard) isLazyDue(i bucket.Index, c *cascade) (deadline int64, due bool) {
	for l := lazyOf(s.arena.Task(i)); ; {
		word := l.Word.Load()
		if word == 0 {
			deadline = s.arena.Deadline(i)
			return deadline, c.allDue || !s.addAgain(i, deadline)
		}
		deadline = deadlineOf(word)
		s.arena.SetDeadline(i, deadline)
		if s.addAgain(i, deadline) {
			return deadline, false
		}
		if l.giveBackIf(word) { // or else it was pushed back just now
			s.counts.Reset += pushesOf(word)
			return deadline, true
		}
	}
}

// latenessRun counts how late entries are, in the order in which they fire. Most entries
// have the tick of the one before. They share its computation.
type latenessRun struct {
	of       *Histogram
	n        int64 // entries of the present tick
	deadline int64 // the present tick
	late     time.Duration
	most     time.Duration
}

func (r *latenessRun) record(deadline int64, c *clock, now time.Duration) {
	if r.n == 0 || deadline != r.deadline {
		r.done()
		r.deadline, r.late = deadline, max(0, now-c.duration(deadline))
	}
	r.n++
}

// done returns the most by which an entry was late; -1 if there was none.
func (r *latenessRun) done() time.Duration {
	if r.n > 0 {
		r.of.record(r.late, r.n)
		r.most, r.n = max(r.most, r.late+1), 0
	}
	return r.most - 1
}

// passed counts the tasks that were added to out since it had the given number of them as
// running. An executor with an admission gets them here. It is called with s.mu held.
func (s *shard) passed(before int) {
	out, r := s.out, s.hub.runner
	r.Admit(len(out.tasks) - before)
	if a := s.hub.admission; a != nil && len(out.tasks) > 0 {
		a.Pass(out.tasks, r)
		clear(out.tasks)
		out.tasks = out.tasks[:0]
	}
}

// fire is called with s.mu held.
func (s *shard) fire(i bucket.Index) {
	if isInternal(s.arena.Tag(i)) {
		s.fireInternal(i)
		return
	}
	s.execute(run.Function(s.takeFunction(i)))
}

func (s *shard) fireInternal(i bucket.Index) {
	s.counts.Expired++
	f, kind := s.remove(i)
	before := len(s.out.tasks)
	s.call(f, kind)
	if a := s.hub.admission; a != nil && needsExecutor(kind) && len(s.out.tasks) == before {
		a.Release() // a Job only had to look at its calendar
		s.out.held = true
	}
}

// call calls a task of the wheel's own. It is called with s.mu held.
func (s *shard) call(f func(), tag bucket.Tag) {
	if tag&Disguised != 0 {
		s.due(f)
	} else {
		f()
	}
}

// takeFunction takes an entry off the wheel that fires, and returns the user's function.
func (s *shard) takeFunction(i bucket.Index) func() {
	s.counts.Expired++
	f, kind := s.remove(i)
	if isLazy(kind) {
		return lazyOf(f).F
	}
	return f
}

// execute notes a task for the executor, and runInternal one for a run queue of the wheel's
// own. Both are called with s.mu held.
func (s *shard) execute(t run.Task)     { s.out.tasks = append(s.out.tasks, t) }
func (s *shard) runInternal(t run.Task) { s.out.internal = append(s.out.internal, t) }

// lockForFlush locks s.mu for the driver. The tasks for the workers do not wait meanwhile.
func (s *shard) lockForFlush() {
	if !s.mu.TryLock() {
		s.hub.host.startWorkers()
		s.lockForDriver()
	}
}

// dropEmpty removes the bucket from the queue and closes it, if it is the head and no
// entry is left in it. It reports whether no entry is left: the head may be another bucket now.
func (s *shard) dropEmpty(b *slot) bool {
	s.lockForFlush()
	defer s.unlock()
	return s.dropIfEmpty(b)
}

// dropIfEmpty is dropEmpty for a caller that holds s.mu.
func (s *shard) dropIfEmpty(b *slot) bool {
	if s.stopped || !b.IsOpen() || b.First(&s.arena) != 0 {
		return false
	}
	if s.hub.queue.DropHead(b) {
		b.Close(&s.arena)
		b.cascade.openBuckets--
	}
	return true
}

// dropAny is dropIfEmpty for the bucket of any shard, unless another shard is locked just now: to
// wait for its lock could deadlock.
func (s *shard) dropAny(b *slot) bool {
	if b.cascade.shard == s.id {
		return s.dropIfEmpty(b)
	}
	other := s.hub.host.shard(b.cascade.shard)
	if !other.tryLock() {
		return false
	}
	defer other.unlock()
	return other.dropIfEmpty(b)
}

// Cancels drop so many emptied buckets in so long a time. A lone timeout that is canceled then
// wakes no driver, which takes a hundred times as long as the cancel. Where more are canceled,
// the driver drops their buckets when it wakes up, many at a time. The time is that of the last add,
// since a cancel reads no clock. A look that drops nothing counts, too.
const (
	mostDrops   = 4
	dropsWithin = 10 * time.Millisecond
)

// dropEmptied drops buckets that cancels have emptied from the head of the queue. One of another
// shard was not the head when it was emptied.
// The caller holds s.mu.
//
// In a bubble of testing/synctest that is not the wheel's, the driver does that, since the alarm
// cannot be set there.
//
// The driver may set lateHint between the two lines that set it here. Then a time that has
// passed may stay until the driver runs next, and some adds yield that need not.
func (s *shard) dropEmptied() {
	if s.added-s.dropsSince >= dropsWithin {
		s.dropsSince, s.drops = s.added, 0
	}
	if !s.clock.fits() {
		return
	}
	for s.drops < mostDrops {
		s.drops++
		b, _, ok := s.hub.queue.Peek()
		if !ok || !s.dropAny(b) {
			return
		}
		if _, at, ok := s.hub.queue.Peek(); ok {
			s.hub.lateHint.next(at.Sub(s.clock.Start))
		} else {
			s.hub.lateHint.next(math.MaxInt64)
		}
	}
}
