package engine

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
)

// verifier collects what is wrong.
type verifier struct {
	wrong  []error
	queued map[*slot]time.Time // the buckets in the queue that no shard has accounted for yet
}

func (v *verifier) check(ok bool, format string, args ...any) {
	if !ok && len(v.wrong) < 10 {
		v.wrong = append(v.wrong, fmt.Errorf(format, args...))
	}
}

// Verify checks the invariants of the whole engine, for tests. The driver must be asleep, or
// the drive manual, and no call may be under way.
func Verify(e *Engine) error {
	v := &verifier{queued: map[*slot]time.Time{}}
	v.lookAtQueue(e)
	var oneShots, entries, waiting int64
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		if s.stopped && s.arena.Chunks() == 0 { // its buckets refer to an arena that is gone
			v.check(s.entries == [levels]int32{} && s.oneShots == 0, "a stopped shard counts what is gone")
		} else {
			err := s.arena.Verify(buckets(s))
			v.check(err == nil, "%v", err)
			v.counts(s)
			v.slots(s)
			v.samples(s)
		}
		oneShots += s.oneShots
		for _, n := range s.entries {
			entries += int64(n)
		}
		if !s.stopped { // or else nothing there waits for the executor any more
			waiting += int64(s.entries[levelWaiting])
		}
		s.mu.Unlock()
	}
	v.check(len(v.queued) == 0, "%d buckets in the queue that are not open", len(v.queued))
	if l := e.driver.limit; l != nil {
		v.check(l.taken() == oneShots, "the limit counts %d pending, not %d", l.taken(), oneShots)
	}
	st := e.Stats()
	v.check(st.Scheduled == st.Expired+st.Stopped+st.HandedBack+st.Pending, "the accounts do not fit")
	v.check(st.Pending == entries, "%d pending, %d entries", st.Pending, entries)
	v.check(e.driver.numWaiting.Load() == waiting, "the hub counts %d that wait, not %d", e.driver.numWaiting.Load(), waiting)
	return errors.Join(v.wrong...)
}

// lookAtQueue notes the buckets in the queue, and checks that none is in it twice. It empties
// the queue and fills it again in the same order.
func (v *verifier) lookAtQueue(e *Engine) {
	var order []*slot
	for e.driver.queue.Len() > 0 {
		b, at, _ := e.driver.queue.Peek()
		v.check(e.driver.queue.DropHead(b), "the head of the queue is not its head")
		v.check(v.queued[b].IsZero(), "a bucket is in the queue twice")
		v.queued[b] = at
		order = append(order, b)
	}
	for _, b := range order {
		e.driver.queue.Offer(b, v.queued[b])
	}
}

// counts compares what the shard has counted with the structure: the entries of each level,
// the open buckets, and the one-shots. The caller of it and of slots holds s.mu.
func (v *verifier) counts(s *shard) {
	var entries [levels]int32
	var oneShots int64
	count := func(level uint, b *bucket.Bucket) {
		for i := range b.All(&s.arena) {
			v.check(uint(s.arena.Tag(i)>>levelShift) == level, "an entry whose tag names another level")
			v.lazy(s, i, level)
			entries[level]++
			if s.arena.Tag(i)&OneShot != 0 {
				oneShots++
			}
		}
	}
	countAll := func(level uint, c *cascade, slots ...*slot) {
		count(level, &c.ring)
		open := 0
		for _, b := range slots {
			count(level, &b.Bucket)
			if b.IsOpen() {
				open++
			}
		}
		v.check(open == c.openBuckets, "%d buckets are open, not %d", open, c.openBuckets)
	}
	countAll(levelDue, &s.overdueCascade, &s.overdue)
	count(levelDue, &s.atOnce)
	count(levelWaiting, &s.waiting)
	for w := s.finest; w != nil; w = w.overflow {
		var slots []*slot
		for _, b := range w.slots() {
			slots = append(slots, b)
		}
		countAll(w.level, &w.cascade, slots...)
	}
	v.check(entries == s.entries, "entries of the levels: %v, not %v", s.entries, entries)
	v.check(oneShots == s.oneShots, "%d one-shots, not %d", s.oneShots, oneShots)
}

// lazy checks the word of a LazyTask, if the entry has one.
func (v *verifier) lazy(s *shard, i bucket.Index, level uint) {
	if !isLazy(s.arena.Tag(i)) {
		return
	}
	l := lazyOf(s.arena.Task(i))
	v.check(l.F != nil, "a lazy task without a function")
	v.check(l.Word.Load() != NotLazy, "a lazy task that looks like none")
	deadline, kept := l.deadline()
	// Until the pass has come to the entry, one of a closed shard is as it was.
	v.check(kept == (level < levelWaiting) || s.closed, "the wrong one has the deadline of a lazy task")
	v.check(!kept || deadline >= s.arena.Deadline(i), "a lazy task was brought forward")
}

// slots checks the clocks of the shard, and its open buckets. It takes these out of queued.
func (v *verifier) slots(s *shard) {
	inQueue := func(b *slot, at time.Time) {
		queuedAt, ok := v.queued[b]
		v.check(ok, "an open bucket is not in the queue")
		v.check(at.IsZero() || queuedAt.Equal(at), "a bucket waits for another time than its expiration")
		delete(v.queued, b)
	}
	if s.overdue.IsOpen() {
		inQueue(&s.overdue, time.Time{})
	}
	for w := s.finest; w != nil; w = w.overflow {
		if o := w.overflow; o != nil {
			v.check(o.tick == w.tick<<w.bits, "the overflow's tick is not this wheel's interval")
			v.check(o.currentTime == w.currentTime&^(o.tick-1), "the clock of the overflow is another")
		}
		v.check(w.currentTime%w.tick == 0, "a clock between two ticks")
		for n, b := range w.slots() {
			if !b.IsOpen() {
				continue
			}
			e := b.Expiration()
			inQueue(b, s.clock.Start.Add(s.clock.duration(e)))
			v.check(int64(n) == e>>w.shift&(1<<w.bits-1), "a bucket is in another slot's place")
			v.check(e%w.tick == 0, "a bucket expires between two ticks")
			v.check(e > w.currentTime, "the clock has passed a bucket that was not flushed")
			v.check((e^w.currentTime)>>(w.shift+w.bits) == 0, "a bucket outside the current interval")
			for i := range b.All(&s.arena) {
				v.check(s.deadline(i) >= e, "an entry waits in a bucket that expires after it")
			}
		}
	}
}

// buckets returns every bucket of the shard, open or not.
func buckets(s *shard) iter.Seq[*bucket.Bucket] {
	all := []*bucket.Bucket{&s.overdue.Bucket, &s.overdueCascade.ring, &s.atOnce, &s.waiting}
	for w := s.finest; w != nil; w = w.overflow {
		all = append(all, &w.cascade.ring)
		for _, b := range w.slots() {
			all = append(all, &b.Bucket)
		}
	}
	return slices.Values(all)
}

// samples checks that with a rate of 1 all that is pending has one sample.
func (v *verifier) samples(s *shard) {
	p, ok := s.hub.profile.(*Profile)
	if !ok {
		return
	}
	v.check(s.nextSample > s.counts.Scheduled, "sample %d was due, and %d is", s.nextSample, s.counts.Scheduled)
	found := map[bucket.Index]int{}
	q := p.of(s)
	v.check(q.begin <= q.end && q.begin < sampleChunkLen && (q.end+sampleChunkLen-1)/sampleChunkLen <= len(q.chunks), "a queue of samples from %d to %d in %d chunks", q.begin, q.end, len(q.chunks))
	for place := q.begin; place < q.end; place++ {
		sa := q.at(place)
		v.check(sa.origin != origin{}, "a sample without a stack")
		if i, ok := s.arena.Find(sa.index, sa.generation); ok {
			found[i]++
			v.check(found[i] == 1, "two samples of one entry")
		}
	}
	v.check(s.hub.profile.oneIn() > 1 || len(found) == s.arena.Len(), "%d samples of %d entries", len(found), s.arena.Len())
}

// Samples returns how many samples there are, and room for how many, for tests.
func (e *Engine) Samples() (n, room int) {
	for i := range e.shards {
		s := &e.shards[i]
		s.mu.Lock()
		q := e.driver.profile.(*Profile).of(s)
		n, room = n+q.end-q.begin, room+len(q.chunks)*sampleChunkLen
		s.mu.Unlock()
	}
	return n, room
}
