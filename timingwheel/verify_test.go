package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/bucket"
)

// verify checks the invariants of the whole wheel. The driver must be asleep, or
// the drive manual, and no call under way.
func (w *TimingWheel) verify(t testing.TB) {
	t.Helper()
	queued := w.queued(t)
	for i := range w.shards {
		w.shards[i].verify(t, queued)
	}
	require.Empty(t, queued, "buckets in the queue that are not open")
}

// queued returns the buckets in the queue, each with its time, and checks that
// none is in it twice. It empties the queue and fills it again in the same order.
func (w *TimingWheel) queued(t testing.TB) map[*slot]time.Time {
	t.Helper()
	q := w.driver.queue
	times := map[*slot]time.Time{}
	var order []*slot
	for q.Len() > 0 {
		b, at, _ := q.Peek()
		require.True(t, q.DropHead(b))
		require.NotContains(t, times, b, "a bucket is in the queue twice")
		times[b] = at
		order = append(order, b)
	}
	for _, b := range order {
		q.Offer(b, times[b])
	}
	return times
}

// verify takes the shard's open buckets out of queued.
func (s *shard) verify(t testing.TB, queued map[*slot]time.Time) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()

	require.NoError(t, s.arena.Verify(s.buckets()))

	inQueue := func(b *slot, at time.Time) {
		queuedAt, ok := queued[b]
		require.True(t, ok, "an open bucket is not in the queue")
		if !at.IsZero() {
			require.True(t, queuedAt.Equal(at), "a bucket waits for another time than its expiration")
		}
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
			require.EqualValues(t, n, e>>w.shift&(1<<w.bits-1), "a bucket is in another slot's place")
			require.Zero(t, e%w.tick)
			require.Greater(t, e, w.currentTime, "the clock has passed a bucket that was not flushed")
			require.Zero(t, (e^w.currentTime)>>(w.shift+w.bits), "a bucket outside the current interval")
			for i := range b.All(&s.arena) {
				deadline := s.arena.Deadline(i)
				require.GreaterOrEqual(t, deadline, e, "an entry waits in a bucket that expires after it")
				require.Less(t, deadline-e, w.tick)
			}
		}
	}
}

// buckets iterates over every bucket of the shard, open or not.
func (s *shard) buckets() func(yield func(*bucket.Bucket) bool) {
	return func(yield func(*bucket.Bucket) bool) {
		if !yield(&s.due.Bucket) || !yield(&s.dueCascade.ring) {
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
