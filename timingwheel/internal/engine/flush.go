package engine

import (
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// The flush of a bucket: its entries go back through add, slice by slice, so that they
// cascade down to a finer wheel, or fire. The driver calls it.

// SliceLen is how many entries of a cascade are flushed before the lock is released: 256
// at 25 to 50 ns each make about 10 us.
const SliceLen = 256

// DueTasks is what the flush of a slice has found to be due. hand empties it before the
// next slice.
type DueTasks struct {
	Tasks    []run.Task    // for the executor
	contexts []run.Task    // for a run queue of the wheel's own, which no user's function can block
	passed   int           // tasks that an admission got already
	held     bool          // something waits at the gate, or has given its room back
	late     time.Duration // the most by which one was late that fired; -1 if none did
}

// history is what a shard remembers of what was flushed. It is apart from the shard, which
// would have almost twice the size with it, also where nothing was ever added.
type history struct {
	lateness Histogram
	Cascaded [Levels]int64 // entries that have left the level for a finer one
}

// Expire begins the cascade of a bucket that the driver has taken from the queue, and
// flushes its first slice. No cascade of the same level may be under way.
//
// The clocks advance before the entries are added again. Otherwise the entries would
// return to the bucket they came from. The clocks advance to the bucket's expiration
// only, never to now. Otherwise an entry added later could overtake one that waits in a
// coarser bucket. All of this happens without releasing the lock. Otherwise an entry
// could be added in between, and overtake those of its tick that are in the bucket.
func (s *Shard) Expire(b *Slot, out *DueTasks) (more bool) {
	s.lockForFlush()
	defer s.Unlock()
	if s.Stopped {
		return false
	}
	s.out = out
	b.Cascade.open--
	if s.History == nil {
		s.History = new(history)
	}
	if s.Finest != nil {
		s.Finest.advance(b.Expiration())
	}
	b.MoveTo(&s.Arena, &b.Cascade.Ring)
	return s.flushSlice(b.Cascade)
}

// Flush goes on with a cascade: it adds a slice of the entries to the wheels again, fires
// those that are due, and reports whether entries are left.
func (s *Shard) Flush(c *Cascade, out *DueTasks) (more bool) {
	s.RelockForDriver()
	defer s.Unlock()
	if s.Stopped {
		return false
	}
	s.out = out
	return s.flushSlice(c)
}

// flushSlice is called with s.Mu held.
func (s *Shard) flushSlice(c *Cascade) (more bool) {
	now, before := s.Clock.Now(), len(s.out.Tasks)
	if !s.Hub.manual {
		s.Hub.LateHint.Next(now)
	}
	run := LatenessRun{Of: &s.History.lateness}
	gated := s.Hub.gate != nil && !s.Hub.gate.lets()
	for range SliceLen {
		i := c.Ring.TakeFirst(&s.Arena)
		if i == 0 {
			break
		}
		deadline, tag := s.Arena.Deadline(i), s.Arena.Tag(i)
		due := c.due
		if tag&lazy != 0 {
			deadline, due = s.isLazyDue(i, c)
		} else if !due {
			due = !s.addAgain(i, deadline)
		}
		if !due {
			level := tag >> levelShift
			s.Entries[level]--
			if s.Arena.Tag(i)>>levelShift < level { // or else it was pushed back
				s.History.Cascaded[level]++
			}
			continue
		}
		if gated && needsExecutor(tag) && s.held(i) {
			s.out.held = true
			continue
		}
		run.Record(deadline, s.Clock, now)
		s.fire(i)
	}
	s.out.late = max(s.out.late, run.End())
	s.passed(before)
	s.tidy(SliceLen)
	if c.Ring.First(&s.Arena) != 0 {
		return true
	}
	c.Ring.Close(&s.Arena)
	return false
}

// addAgain adds an entry of a cascade to the wheels, and reports false if it is due.
func (s *Shard) addAgain(i bucket.Index, deadline int64) bool {
	level, ok := s.Finest.add(i, deadline)
	if ok {
		s.enter(i, level)
	}
	return ok
}

// isLazyDue returns the deadline of an entry of a cascade that has the tag lazy, and
// reports whether the entry is due. If it is not, isLazyDue adds it to the wheels again.
func (s *Shard) isLazyDue(i bucket.Index, c *Cascade) (deadline int64, due bool) {
	for l := LazyOf(s.Arena.Task(i)); ; {
		deadline, kept := l.Deadline()
		if !kept {
			deadline = s.Arena.Deadline(i)
			return deadline, c.due || !s.addAgain(i, deadline)
		}
		s.Arena.SetDeadline(i, deadline)
		if s.addAgain(i, deadline) {
			return deadline, false
		}
		if pushes, ok := l.Fall(deadline); ok { // or else it was pushed back just now
			s.counts.Reset += pushes
			return deadline, true
		}
	}
}

// LatenessRun counts how late entries are, in the order in which they fire. Most entries
// have the tick of the one before. They share its computation.
type LatenessRun struct {
	Of       *Histogram
	n        int64 // entries of the present tick
	deadline int64 // the present tick
	late     time.Duration
	most     time.Duration
}

func (r *LatenessRun) Record(deadline int64, c *clock, now time.Duration) {
	if r.n == 0 || deadline != r.deadline {
		r.End()
		r.deadline, r.late = deadline, max(0, now-c.duration(deadline))
	}
	r.n++
}

// End returns the most by which an entry was late; -1 if there was none.
func (r *LatenessRun) End() time.Duration {
	if r.n > 0 {
		r.Of.Record(r.late, r.n)
		r.most, r.n = max(r.most, r.late+1), 0
	}
	return r.most - 1
}

// passed counts the tasks that were added to out since it had the given number of them,
// and lets the gate hand them over. It is called with s.Mu held.
func (s *Shard) passed(before int) {
	out, r := s.out, s.Hub.runner
	r.Admit(len(out.Tasks) - before)
	if room := s.Hub.room; room != nil && len(out.Tasks) > 0 {
		room.Pass(out.Tasks, r)
		out.passed += len(out.Tasks)
		clear(out.Tasks)
		out.Tasks = out.Tasks[:0]
	}
}

// fire is called with s.Mu held.
func (s *Shard) fire(i bucket.Index) {
	s.counts.Fired++
	f, kind := s.Remove(i)
	if kind&lazy != 0 {
		f = LazyOf(f).F
	}
	if !isInternal(kind) {
		s.execute(run.Function(f))
		return
	}
	before := len(s.out.Tasks)
	f()
	if room := s.Hub.room; room != nil && needsExecutor(kind) && len(s.out.Tasks) == before {
		room.Release() // a Job only had to look at its calendar
		s.out.held = true
	}
}

// execute notes a task for the executor. end notes a task for a run queue of the wheel's
// own. Both are called with s.Mu held.
func (s *Shard) execute(t run.Task)     { s.out.Tasks = append(s.out.Tasks, t) }
func (s *Shard) runInternal(t run.Task) { s.out.contexts = append(s.out.contexts, t) }

// lockForFlush locks s.Mu for the driver. What is for the workers does not wait for a
// caller.
func (s *Shard) lockForFlush() {
	if !s.Mu.TryLock() {
		s.Hub.host.startWorkers()
		s.LockForDriver()
	}
}

// DropEmpty removes the bucket from the queue and closes it, if it is the head and no
// entry is left in it. It reports whether it did: the head may be another bucket now.
func (s *Shard) DropEmpty(b *Slot) bool {
	s.lockForFlush()
	defer s.Unlock()
	if s.Stopped || !b.IsOpen() || b.First(&s.Arena) != 0 {
		return false
	}
	if s.Hub.Queue.DropHead(b) {
		b.Close(&s.Arena)
		b.Cascade.open--
	}
	return true
}
