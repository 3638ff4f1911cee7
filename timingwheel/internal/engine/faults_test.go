package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/bucket"
)

// An adder reads the clock, is descheduled, and links its entry when the bucket
// has been flushed, or is in use for a later round.
func TestFaultAdderDescheduledAfterReadingTheClock(t *testing.T) {
	for _, size := range []int{2, 512} {
		for _, late := range []time.Duration{0, 1, 3, 511, 512, 513, 100_000} {
			synctest.Test(t, func(t *testing.T) {
				w := manual(withWheelSize(size))
				s := &w.shards[0]
				stale := w.clock.Now()
				// Meanwhile the clock goes on to a later round, and the slot of the
				// deadline is taken by one.
				w.AfterFunc(10*time.Millisecond+late*time.Millisecond, func() {})
				time.Sleep(10*time.Millisecond + late*time.Millisecond)
				require.Equal(t, 1, w.Drive(0))
				w.AfterFunc(time.Duration(size)*time.Millisecond, func() {})
				w.AfterFunc(time.Duration(size*size)*time.Millisecond, func() {})

				fired := false
				s.mu.Lock()
				h := s.add(Delay{Now: stale, D: 10 * time.Millisecond}, func() { fired = true }, OneShot)
				s.mu.Unlock()
				require.True(t, s.isPending(h))
				w.verify(t)
				require.Equal(t, 1, w.Drive(0), "it is due, and nothing else is")
				require.True(t, fired)
				require.Len(t, w.Stop(), 2)
			})
		}
	}
}

// A cancel that arrives while the task is between two buckets.
func TestFaultCancelBetweenTwoBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		const tasks = 3 * SliceLen
		ran := 0
		timeouts := make([]timeout, tasks)
		for i := range timeouts {
			timeouts[i], _ = w.Schedule(1100*time.Millisecond+time.Duration(i%100)*time.Millisecond, func() { ran++ })
		}
		_, at, ok := w.driver.queue.Peek()
		require.True(t, ok)
		time.Sleep(time.Until(at))
		b, ok := w.driver.queue.Poll()
		require.True(t, ok)
		w.driver.flushFirst(b)
		w.driver.handOver()
		require.NotEmpty(t, w.driver.cascades, "one slice is down, the rest between two buckets")
		for i, timeout := range timeouts {
			if i%2 == 0 {
				require.True(t, timeout.Cancel())
				require.False(t, timeout.Cancel())
			}
		}
		w.verify(t)
		require.Equal(t, tasks/2, w.Len())
		time.Sleep(time.Minute)
		for w.Len() > 0 {
			w.Drive(0)
			w.verify(t)
		}
		require.Equal(t, tasks/2, ran)
	})
}

// The same for a reset, and for Stop: what is between two buckets is pending.
func TestFaultResetAndStopBetweenTwoBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		const tasks = 3 * SliceLen
		timers := make([]*timer, tasks)
		for i := range timers {
			timers[i] = w.AfterFunc(1100*time.Millisecond+time.Duration(i%100)*time.Millisecond, func() { t.Error("ran") })
		}
		time.Sleep(1024 * time.Millisecond)
		b, ok := w.driver.queue.Poll()
		require.True(t, ok)
		w.driver.flushFirst(b)
		w.driver.handOver()
		for i, timer := range timers {
			if i%3 == 0 {
				require.True(t, timer.Reset(time.Hour))
			}
		}
		w.verify(t)
		require.Equal(t, tasks, w.Len())
		require.Len(t, w.Stop(), tasks)
		require.Zero(t, w.driver.flushRest(), "the driver finds nothing left of a cascade that Stop has cleared")
	})
}

// Stop on a timer that has fired cancels another task that has its place now, or damages
// its list.
func TestFaultStopAfterFiringHitsAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		first := w.AfterFunc(time.Millisecond, func() {})
		stale, _ := w.Schedule(time.Millisecond, func() {})
		time.Sleep(time.Millisecond)
		require.Equal(t, 2, w.Drive(0))
		firstPlace, stalePlace := first.entry.ref.index, stale.ref.index

		ran := 0
		places := map[bucket.Index]bool{}
		for range 5 {
			stranger, _ := w.Schedule(time.Millisecond, func() { ran++ })
			places[stranger.ref.index] = true
		}
		require.True(t, places[firstPlace] || places[stalePlace], "the test needs a place to be used again")
		for range 2 {
			require.False(t, first.Stop())
			require.False(t, stale.Cancel())
		}
		w.verify(t)
		time.Sleep(time.Millisecond)
		require.Equal(t, 5, w.Drive(0))
		require.Equal(t, 5, ran)
		require.Empty(t, w.Stop())
	})
}

// An add waits while a million entries cascade. Here by construction: the lock is
// held for no more than a slice at a time.
func TestFaultAddWaitsForTheCascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		const tasks = 11*SliceLen + 1
		for range tasks {
			w.Schedule(time.Second, func() {})
		}
		time.Sleep(time.Second)
		b, ok := w.driver.queue.Poll()
		require.True(t, ok)
		w.driver.flushFirst(b)
		w.driver.handOver()
		s, c := &w.shards[0], b.cascade
		for range 10 {
			before := countRing(s, c)
			require.True(t, s.tryLock(), "between slices the lock is free")
			s.mu.Unlock()
			w.driver.flushNext()
			require.True(t, w.driver.sliced, "it has more")
			require.Equal(t, SliceLen, before-countRing(s, c))
		}
	})
}

func countRing(s *shard, c *cascade) (n int) {
	for range c.ring.All(&s.arena) {
		n++
	}
	return n
}

// Finer buckets that come due during a long cascade do not wait for its end.
func TestFinerBucketsPassALongCascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		const tasks = 10 * SliceLen
		for range tasks {
			w.AfterFunc(1500*time.Millisecond, func() {})
		}
		time.Sleep(1024 * time.Millisecond) // the coarse bucket of 1.5 s expires
		b, ok := w.driver.queue.Poll()
		require.True(t, ok)
		w.driver.flushFirst(b)
		w.driver.handOver()
		passed := false
		w.AfterFunc(time.Millisecond, func() {
			passed = true
			require.Positive(t, countRing(&w.shards[0], b.cascade), "the cascade is still under way")
		})
		time.Sleep(time.Millisecond)
		w.driver.flushRest()
		require.True(t, passed)
	})
}

// While nothing is due, nobody wakes up: not for a timer far ahead, and not for buckets
// whose entries have all been canceled while the driver was awake.
func TestIdleIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withShards(1))
		defer w.Stop()
		start := time.Now()
		w.AfterFunc(time.Hour, func() {})
		var timers []*timer
		for i := range 500 {
			timers = append(timers, w.AfterFunc(time.Duration(i+10)*time.Millisecond, func() {}))
		}
		synctest.Wait()
		for _, timer := range timers {
			timer.Stop()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, w.driver.queue.Len(), "emptied buckets are dropped before the driver sleeps")
		_, at, _ := w.driver.queue.Peek()
		require.Greater(t, at.Sub(start), time.Minute)
		w.verify(t)
	})
}

// A lone timeout that is canceled wakes nobody, though the driver sleeps toward its bucket. So
// do two with deadlines of their own, beside others that are pending.
func TestCanceledAloneWakesNobody(t *testing.T) {
	for name, beside := range map[string]time.Duration{"alone": 0, "beside one": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWheel(withShards(1))
				defer w.Stop()
				if beside > 0 {
					w.AfterFunc(beside, func() {})
				}
				for range 40 {
					first := w.AfterFunc(50*time.Millisecond, func() {})
					second := w.AfterFunc(30*time.Second, func() {})
					synctest.Wait()
					second.Stop()
					first.Stop()
					w.verify(t)
					time.Sleep(100 * time.Millisecond)
				}
				require.Zero(t, w.Stats().Wakeups)
				ran := make(chan time.Time)
				begin := time.Now()
				w.AfterFunc(50*time.Millisecond, func() { ran <- time.Now() })
				require.LessOrEqual(t, (<-ran).Sub(begin), 51*time.Millisecond, "the alarm is set again")
			})
		})
	}
}

// So it is where the two are on different shards.
func TestCanceledOnTwoShardsWakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withShards(2))
		defer w.Stop()
		add := func(s *shard, d time.Duration) Handle {
			s.lock()
			defer s.unlock()
			return Handle{s, s.add(Delay{w.clock.Now(), d}, mustNotRun, OneShot)}
		}
		cancel := func(h Handle) {
			h.LockShard()
			defer h.UnlockShard()
			require.True(t, h.Cancel())
		}
		for range 40 {
			first := add(&w.shards[0], 50*time.Millisecond)
			second := add(&w.shards[1], 30*time.Second)
			synctest.Wait()
			cancel(second)
			cancel(first)
			w.verify(t)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		require.Zero(t, w.Stats().Wakeups)
	})
}
