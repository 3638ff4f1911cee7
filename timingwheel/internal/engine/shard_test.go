package engine

import (
	"math"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/bucket"
)

func TestLevelsAreMadeOnFirstUse(t *testing.T) {
	w := newTestWheel(withShards(4), withTick(time.Minute))
	defer w.Stop()
	for i := range w.shards {
		require.Nil(t, w.shards[i].finest)
	}
	w.AfterFunc(0, noop)
	w.AfterFunc(100*time.Millisecond, noop)
	levels := 0
	for i := range w.shards {
		for l := w.shards[i].finest; l != nil; l = l.overflow {
			levels++
		}
	}
	require.Equal(t, 1, levels, "one level, of one shard")
}

// Buckets whose tasks were all canceled wait in the queue until they expire. They keep no
// chunk of the arena.
func TestEmptiedBucketsKeepNoChunks(t *testing.T) {
	w := newTestWheel(withShards(1), withManualDrive(), withTick(time.Microsecond), withWheelSize(65536))
	defer w.Stop()
	var timeouts []timeout
	buckets := unlessShort(65536, 16384)
	for i := range buckets {
		for range 10 {
			timeout, err := w.Schedule(time.Duration(i+2)*66*time.Millisecond, noop)
			require.NoError(t, err)
			timeouts = append(timeouts, timeout)
		}
	}
	for _, timeout := range timeouts {
		require.True(t, timeout.Cancel())
	}
	require.Greater(t, w.driver.queue.Len(), buckets/2-2000)
	require.LessOrEqual(t, w.Stats().Capacity, int64(2048))
}

// whereIs returns the bucket in which an entry waits.
func whereIs(s *shard, place bucket.Index) *slot {
	s.lock()
	defer s.unlock()
	for w := s.finest; w != nil; w = w.overflow {
		for _, b := range w.slots() {
			for i := range b.All(&s.arena) {
				if i == place {
					return b
				}
			}
		}
	}
	return nil
}

// A reset to a later time leaves the entry in its bucket; one to an earlier time or to now
// moves it. In each case it fires on time. From the second on, resets to a later time take
// no lock.
func TestResetToALaterTimeMovesNoEntry(t *testing.T) {
	for name, c := range map[string]struct {
		first, reset time.Duration
		moves        bool
	}{
		"later, same slot":      {3*time.Second + time.Millisecond, 3*time.Second + 2*time.Millisecond, false},
		"later, same level":     {3 * time.Second, 100 * time.Second, false},
		"later, next level":     {100 * time.Millisecond, 3 * time.Second, false},
		"the same":              {3 * time.Second, 3 * time.Second, false},
		"earlier":               {3 * time.Second, 2 * time.Second, true},
		"now":                   {3 * time.Second, 0, true},
		"beyond the last level": {3 * time.Second, 1000 * time.Hour, false},
	} {
		test := func(t *testing.T, resets int) {
			synctest.Test(t, func(t *testing.T) {
				w := manual(withWheelSize(512))
				defer w.Stop()
				s := &w.shards[0]
				w.Schedule(4*time.Minute, func() {}) // makes three levels
				w.Schedule(10*time.Minute, func() {})
				start := time.Now()
				var fired time.Duration
				timer := w.AfterFunc(c.first, func() { fired = time.Since(start) })
				for range resets {
					require.True(t, timer.Reset(c.first))
				}
				before := whereIs(s, timer.entry.ref.index)
				require.True(t, timer.Reset(c.reset))
				after := whereIs(s, timer.entry.ref.index)
				require.Equal(t, c.moves, before != after)
				w.verify(t)
				w.verifySnapshot(t, 3)
				for fired == 0 && (c.reset > 0 || w.Drive(0) == 0) {
					w.Drive(time.Hour)
					w.verify(t)
				}
				require.Equal(t, c.reset, fired)
				require.EqualValues(t, resets+1, w.Stats().Reset)
			})
		}
		t.Run(name, func(t *testing.T) { test(t, 0) })
		t.Run(name+", again", func(t *testing.T) { test(t, 1) })
		t.Run(name+", at the most pushes", func(t *testing.T) { test(t, mostPushes+1) })
	}
}

// Entries that are pushed back while their bucket is in a cascade go where their new time says.
func TestResetInsideACascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		const tasks = 3 * SliceLen
		start := time.Now()
		fired := make([]time.Duration, tasks)
		timers := make([]*timer, tasks)
		for i := range timers {
			timers[i] = w.AfterFunc(1100*time.Millisecond, func() { fired[i] = time.Since(start) })
			for range i % 3 { // the second Reset and the later ones take no lock
				timers[i].Reset(1100 * time.Millisecond)
			}
		}
		time.Sleep(1024 * time.Millisecond)
		b, ok := w.driver.queue.Poll()
		require.True(t, ok)
		w.driver.flushFirst(b)
		w.driver.handOver()
		require.NotEmpty(t, w.driver.cascades)
		for i, timer := range timers {
			if i%2 == 0 {
				require.True(t, timer.Reset(time.Minute))
			}
		}
		w.verify(t)
		w.verifySnapshot(t, 3)
		for w.Len() > 0 {
			w.Drive(time.Hour)
			w.verify(t)
		}
		for i := range fired {
			if i%2 == 0 {
				require.Equal(t, time.Minute+1024*time.Millisecond, fired[i])
			} else {
				require.Equal(t, 1100*time.Millisecond, fired[i])
			}
		}
	})
}

// A shard whose arena has no index left refuses, like one at its limit.
func TestArenaIsFull(t *testing.T) {
	w := newTestWheel(withManualDrive(), withShards(1))
	defer w.Stop()
	pending := w.AfterFunc(time.Hour, func() {})
	s := &w.shards[0]
	used := (*int)(reflect.ValueOf(&s.arena).Elem().FieldByName("used").Addr().UnsafePointer())
	require.Equal(t, 1, *used)
	*used = math.MaxInt32 // nobody has the memory to get there
	_, err := w.Schedule(time.Hour, mustNotRun)
	require.ErrorIs(t, err, ErrTooManyPending)
	pending.entry.LockShard()
	err = pending.entry.Reserve(3)
	pending.entry.UnlockShard()
	require.ErrorIs(t, err, ErrTooManyPending)
	*used = 1
	require.EqualValues(t, 4, w.Stats().Rejected)
	require.True(t, pending.Reset(time.Minute))
	_, err = w.Schedule(time.Hour, func() {})
	require.NoError(t, err)
	w.verify(t)
}

// An add meets the lock, a sample's turn and the hint of a late driver in the same cache lines on
// every shard.
func TestLayout(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the padding is for 64 bits")
	}
	const line = 64
	var s shard
	require.Zero(t, unsafe.Sizeof(s)%line, "the second shard begins within a line")
	require.Equal(t, unsafe.Offsetof(s.mu)/line, unsafe.Offsetof(s.nextSample)/line)
	if unsafe.Sizeof(processorShards{}) == 0 { // and not shardpicker_pool.go's
		require.Zero(t, unsafe.Offsetof(Engine{}.driver)%line)
	}
	require.Less(t, int(unsafe.Offsetof(hub{}.lateHint)), line)
	require.Equal(t, uintptr(16), unsafe.Sizeof(ref{}), "every handle has one")
}

// After an idle stretch an add advances the clocks, but past no bucket, and not while the driver
// may have one.
func TestAddAfterAnIdleStretch(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for name, opts := range map[string][]option{"driver": nil, "by hand": {withManualDrive()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWheel(append(opts, withShards(1))...)
				defer w.Stop()
				s := &w.shards[0]
				_, err := w.Schedule(ms(700), mustNotRun) // in the queue for 512 ms, when it cascades
				require.NoError(t, err)
				catchUp := func(now time.Duration) int64 {
					s.lock()
					s.catchUp(now)
					clock := s.finest.currentTime
					s.unlock()
					w.verify(t)
					return clock
				}
				if w.IsManual() {
					require.Zero(t, catchUp(ms(300)), "the caller of Drive may have taken a bucket")
					return
				}
				synctest.Wait()
				require.Zero(t, catchUp(ms(512)), "a bucket has expired")
				require.EqualValues(t, 511, catchUp(ms(511)))
				require.EqualValues(t, 511, catchUp(ms(300)), "no clock goes back")
			})
		})
	}
}
