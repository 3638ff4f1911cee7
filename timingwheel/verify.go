package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/bucket"
)

// Verify checks the invariants of the whole engine. The driver must be asleep, or the
// drive manual, and no call may be under way.
func Verify(t testing.TB, e *engine) {
	t.Helper()
	queued := queuedOf(t, e)
	oneShots, due := int64(0), int64(0)
	for i := range e.Shards() {
		verifyShard(&e.Shards()[i], t, queued)
		n, d := verifyCounts(&e.Shards()[i], t)
		oneShots, due = oneShots+n, due+d
	}
	require.Empty(t, queued, "buckets in the queue that are not open")
	if l := e.Shards()[0].limit; l != nil {
		require.Equal(t, oneShots, l.pending.Load())
	}
	st := e.stats()
	check(t, st.Scheduled == st.Fired+st.Canceled+st.HandedBack+st.Pending, "the accounts do not fit")
	for _, l := range st.levels {
		due += l.Entries
	}
	require.Equal(t, st.Pending, due)
	waiting := int64(0)
	for i := range e.Shards() {
		s := &e.Shards()[i]
		s.mu.Lock()
		if !s.stopped { // or else nothing there waits for the executor any more
			waiting += int64(s.entries[levelWaiting])
		}
		s.mu.Unlock()
	}
	require.Equal(t, waiting, e.Driver().waiting.Load())
}

// check is require.True without its price: it is called for each entry, after each step.
func check(t testing.TB, ok bool, message string) {
	if !ok {
		t.Helper()
		require.Fail(t, message)
	}
}

// verifyCounts compares what the shard has counted with the structure: the entries of
// each level, the open buckets, and the one-shots.
func verifyCounts(s *shard, t testing.TB) (oneShots, due int64) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var entries [levels]int32
	count := func(level uint, b *bucket.Bucket) {
		for i := range b.All(&s.arena) {
			check(t, uint(s.arena.Tag(i)>>levelShift) == level, "an entry whose tag names another level")
			verifyLazy(s, t, i, level)
			entries[level]++
			if s.arena.Tag(i)&oneShot != 0 {
				oneShots++
			}
		}
	}
	countAll := func(level uint, c *cascade, slots ...slot) {
		count(level, &c.ring)
		open := 0
		for i := range slots {
			count(level, &slots[i].Bucket)
			if slots[i].IsOpen() {
				open++
			}
		}
		require.Equal(t, open, c.open)
	}
	countAll(levelDue, &s.dueCascade, s.due)
	count(levelWaiting, &s.waiting)
	for w := s.finest; w != nil; w = w.overflow {
		countAll(w.level, &w.cascade, w.slots...)
	}
	if entries != s.entries {
		require.Equal(t, entries, s.entries)
	}
	require.Equal(t, oneShots, s.oneShots)
	return oneShots, int64(entries[levelDue] + entries[levelWaiting])
}

// Pushes returns how often timers were pushed back without the lock that the shards have
// not counted yet. It changes nothing: the entries keep their old deadlines.
func Pushes(e *engine) (n int64) {
	for i := range e.Shards() {
		s := &e.Shards()[i]
		s.mu.Lock()
		for i := range s.arena.All() {
			if s.arena.Tag(i)&lazy != 0 {
				n += int64(lazyOf(s.arena.Task(i)).word.Load() & mostPushes)
			}
		}
		s.mu.Unlock()
	}
	return n
}

// verifyLazy checks the word of a lazyTask, if the entry has one.
func verifyLazy(s *shard, t testing.TB, i bucket.Index, level uint) {
	if s.arena.Tag(i)&lazy == 0 {
		return
	}
	l := lazyOf(s.arena.Task(i))
	check(t, l.f != nil, "a lazy task without a function")
	check(t, l.word.Load() != notLazy, "a lazy task that looks like none")
	deadline, kept := l.deadline()
	// Until the pass has come to the entry, one of a closed shard is as it was.
	check(t, kept == (level < levelWaiting) || s.closed, "the wrong one has the deadline of a lazy task")
	check(t, !kept || deadline >= s.arena.Deadline(i), "a lazy task was brought forward")
}

// VerifySettled checks that the shards have the deadlines of all lazy tasks, as they must
// once they are closed and the pass is over.
func VerifySettled(t testing.TB, e *engine) {
	t.Helper()
	for i := range e.Shards() {
		s := &e.Shards()[i]
		s.mu.Lock()
		for i := range s.arena.All() {
			check(t, s.arena.Tag(i)&oneShot != 0, "a closed shard holds what does not run once")
			check(t, s.arena.Tag(i)&lazy == 0 || lazyOf(s.arena.Task(i)).word.Load() == 0, "a closed shard has not settled a lazy task")
		}
		s.mu.Unlock()
	}
}

// queuedOf returns the buckets in the queue, each with its time, and checks that
// none is in it twice. It empties the queue and fills it again in the same order.
func queuedOf(t testing.TB, e *engine) map[*slot]time.Time {
	t.Helper()
	q := e.Driver().queue
	times := map[*slot]time.Time{}
	var order []*slot
	for q.Len() > 0 {
		b, at, _ := q.Peek()
		check(t, q.DropHead(b), "the head of the queue is not its head")
		check(t, times[b].IsZero(), "a bucket is in the queue twice")
		times[b] = at
		order = append(order, b)
	}
	for _, b := range order {
		q.Offer(b, times[b])
	}
	return times
}

// verify takes the shard's open buckets out of queued.
func verifyShard(s *shard, t testing.TB, queued map[*slot]time.Time) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()

	require.NoError(t, s.arena.Verify(buckets(s)))

	inQueue := func(b *slot, at time.Time) {
		queuedAt, ok := queued[b]
		check(t, ok, "an open bucket is not in the queue")
		check(t, at.IsZero() || queuedAt.Equal(at), "a bucket waits for another time than its expiration")
		delete(queued, b)
	}
	if s.due.IsOpen() {
		inQueue(&s.due, time.Time{})
	}
	for w := s.finest; w != nil; w = w.overflow {
		if w.overflow != nil {
			require.Equal(t, w.tick<<w.bits, w.overflow.tick, "the overflow's tick is this wheel's interval")
			require.Equal(t, w.currentTime&^(w.overflow.tick-1), w.overflow.currentTime)
		}
		require.Zero(t, w.currentTime%w.tick)
		for n := range w.slots {
			b := &w.slots[n]
			if !b.IsOpen() {
				continue
			}
			e := b.Expiration()
			inQueue(b, s.clock.time(e))
			check(t, int64(n) == e>>w.shift&(1<<w.bits-1), "a bucket is in another slot's place")
			check(t, e%w.tick == 0, "a bucket expires between two ticks")
			check(t, e > w.currentTime, "the clock has passed a bucket that was not flushed")
			check(t, (e^w.currentTime)>>(w.shift+w.bits) == 0, "a bucket outside the current interval")
			for i := range b.All(&s.arena) {
				check(t, s.deadline(i) >= e, "an entry waits in a bucket that expires after it")
			}
		}
	}
}

// buckets iterates over every bucket of the shard, open or not.
func buckets(s *shard) func(yield func(*bucket.Bucket) bool) {
	return func(yield func(*bucket.Bucket) bool) {
		if !yield(&s.due.Bucket) || !yield(&s.dueCascade.ring) || !yield(&s.waiting) {
			return
		}
		for w := s.finest; w != nil; w = w.overflow {
			if !yield(&w.cascade.ring) {
				return
			}
			for n := range w.slots {
				if !yield(&w.slots[n].Bucket) {
					return
				}
			}
		}
	}
}
