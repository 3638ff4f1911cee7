package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
)

// verifier collects what is wrong. It is for tests.
type verifier struct{ wrong []error }

func (v *verifier) check(ok bool, format string, args ...any) {
	if !ok && len(v.wrong) < 10 {
		v.wrong = append(v.wrong, fmt.Errorf(format, args...))
	}
}

// Verify checks the invariants of the whole engine. It is for tests. The driver must be
// asleep, or the drive manual, and no call may be under way.
func Verify(e *Engine) error {
	v := new(verifier)
	queued := v.queuedOf(e)
	oneShots, due := int64(0), int64(0)
	for i := range e.shards {
		v.shard(&e.shards[i], queued)
		n, d := v.counts(&e.shards[i])
		oneShots, due = oneShots+n, due+d
	}
	v.check(len(queued) == 0, "%d buckets in the queue that are not open", len(queued))
	if l := e.shards[0].Limit; l != nil {
		v.check(l.Pending.Load() == oneShots, "the limit counts %d pending, not %d", l.Pending.Load(), oneShots)
	}
	st := e.Stats()
	v.check(st.Scheduled == st.Fired+st.Canceled+st.HandedBack+st.Pending, "the accounts do not fit")
	for _, l := range st.Levels {
		due += l.Entries
	}
	v.check(st.Pending == due, "%d pending, %d entries", st.Pending, due)
	waiting := int64(0)
	for i := range e.shards {
		s := &e.shards[i]
		s.Mu.Lock()
		if !s.Stopped { // or else nothing there waits for the executor any more
			waiting += int64(s.Entries[LevelWaiting])
		}
		s.Mu.Unlock()
	}
	v.check(e.driver.Waiting.Load() == waiting, "the hub counts %d that wait, not %d", e.driver.Waiting.Load(), waiting)
	return errors.Join(v.wrong...)
}

// verifyCounts compares what the shard has counted with the structure: the entries of
// each level, the open buckets, and the one-shots.
func (v *verifier) counts(s *Shard) (oneShots, due int64) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if isGone(s) {
		v.check(s.Entries == [Levels]int32{} && s.OneShots == 0, "a stopped shard counts what is gone")
		return 0, 0
	}
	var entries [Levels]int32
	count := func(level uint, b *bucket.Bucket) {
		for i := range b.All(&s.Arena) {
			v.check(uint(s.Arena.Tag(i)>>levelShift) == level, "an entry whose tag names another level")
			v.lazy(s, i, level)
			entries[level]++
			if s.Arena.Tag(i)&OneShot != 0 {
				oneShots++
			}
		}
	}
	countAll := func(level uint, c *Cascade, slots ...Slot) {
		count(level, &c.Ring)
		open := 0
		for i := range slots {
			count(level, &slots[i].Bucket)
			if slots[i].IsOpen() {
				open++
			}
		}
		v.check(open == c.open, "%d buckets are open, not %d", open, c.open)
	}
	countAll(LevelDue, &s.DueCascade, s.Due)
	count(LevelWaiting, &s.Waiting)
	for w := s.Finest; w != nil; w = w.Overflow {
		countAll(w.Level, &w.Cascade, w.Slots...)
	}
	v.check(entries == s.Entries, "entries of the levels: %v, not %v", s.Entries, entries)
	v.check(oneShots == s.OneShots, "%d one-shots, not %d", s.OneShots, oneShots)
	return oneShots, int64(entries[LevelDue] + entries[LevelWaiting])
}

// verifyLazy checks the word of a LazyTask, if the entry has one.
func (v *verifier) lazy(s *Shard, i bucket.Index, level uint) {
	if s.Arena.Tag(i)&lazy == 0 {
		return
	}
	l := LazyOf(s.Arena.Task(i))
	v.check(l.F != nil, "a lazy task without a function")
	v.check(l.Word.Load() != NotLazy, "a lazy task that looks like none")
	deadline, kept := l.Deadline()
	// Until the pass has come to the entry, one of a closed shard is as it was.
	v.check(kept == (level < LevelWaiting) || s.Closed, "the wrong one has the deadline of a lazy task")
	v.check(!kept || deadline >= s.Arena.Deadline(i), "a lazy task was brought forward")
}

// queuedOf returns the buckets in the queue, each with its time, and checks that
// none is in it twice. It empties the queue and fills it again in the same order.
func (v *verifier) queuedOf(e *Engine) map[*Slot]time.Time {
	q := e.driver.Queue
	times := map[*Slot]time.Time{}
	var order []*Slot
	for q.Len() > 0 {
		b, at, _ := q.Peek()
		v.check(q.DropHead(b), "the head of the queue is not its head")
		v.check(times[b].IsZero(), "a bucket is in the queue twice")
		times[b] = at
		order = append(order, b)
	}
	for _, b := range order {
		q.Offer(b, times[b])
	}
	return times
}

// verify takes the shard's open buckets out of queued.
func (v *verifier) shard(s *Shard, queued map[*Slot]time.Time) {
	s.Mu.Lock()
	defer s.Mu.Unlock()

	if isGone(s) {
		return
	}
	err := s.Arena.Verify(buckets(s))
	v.check(err == nil, "%v", err)

	inQueue := func(b *Slot, at time.Time) {
		queuedAt, ok := queued[b]
		v.check(ok, "an open bucket is not in the queue")
		v.check(at.IsZero() || queuedAt.Equal(at), "a bucket waits for another time than its expiration")
		delete(queued, b)
	}
	if s.Due.IsOpen() {
		inQueue(&s.Due, time.Time{})
	}
	for w := s.Finest; w != nil; w = w.Overflow {
		if w.Overflow != nil {
			v.check(w.Overflow.Tick == w.Tick<<w.Bits, "the overflow's tick is not this wheel's interval")
			v.check(w.Overflow.CurrentTime == w.CurrentTime&^(w.Overflow.Tick-1), "the clock of the overflow is another")
		}
		v.check(w.CurrentTime%w.Tick == 0, "a clock between two ticks")
		for n := range w.Slots {
			b := &w.Slots[n]
			if !b.IsOpen() {
				continue
			}
			e := b.Expiration()
			inQueue(b, s.Clock.Time(e))
			v.check(int64(n) == e>>w.Shift&(1<<w.Bits-1), "a bucket is in another slot's place")
			v.check(e%w.Tick == 0, "a bucket expires between two ticks")
			v.check(e > w.CurrentTime, "the clock has passed a bucket that was not flushed")
			v.check((e^w.CurrentTime)>>(w.Shift+w.Bits) == 0, "a bucket outside the current interval")
			for i := range b.All(&s.Arena) {
				v.check(s.Deadline(i) >= e, "an entry waits in a bucket that expires after it")
			}
		}
	}
}

// isGone reports whether the shard was stopped and has given its arena back, to which its
// buckets refer.
func isGone(s *Shard) bool { return s.Stopped && s.Arena.Chunks() == 0 }

// buckets iterates over every bucket of the shard, open or not.
func buckets(s *Shard) func(yield func(*bucket.Bucket) bool) {
	return func(yield func(*bucket.Bucket) bool) {
		if !yield(&s.Due.Bucket) || !yield(&s.DueCascade.Ring) || !yield(&s.Waiting) {
			return
		}
		for w := s.Finest; w != nil; w = w.Overflow {
			if !yield(&w.Cascade.Ring) {
				return
			}
			for n := range w.Slots {
				if !yield(&w.Slots[n].Bucket) {
					return
				}
			}
		}
	}
}
