package timingwheel

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// whereIs returns the bucket in which an entry waits.
func whereIs(s *engine.Shard, place bucket.Index) *engine.Slot {
	s.Lock()
	defer s.Unlock()
	for w := s.Finest; w != nil; w = w.Overflow {
		for n := range w.Slots {
			for i := range w.Slots[n].All(&s.Arena) {
				if i == place {
					return &w.Slots[n]
				}
			}
		}
	}
	return nil
}

// A reset to a later time leaves the entry in its bucket; one to an earlier time or to now
// moves it. In each case it fires on time. From the second on, resets to a later time take
// no lock.
func TestResetIsLazy(t *testing.T) {
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
				w := manual(WithWheelSize(512))
				defer w.Stop()
				s := &w.engine().Shards()[0]
				w.Schedule(4*time.Minute, func() {}) // makes three levels
				w.Schedule(10*time.Minute, func() {})
				start := time.Now()
				var fired time.Duration
				timer := w.AfterFunc(c.first, func() { fired = time.Since(start) })
				for range resets {
					require.True(t, timer.Reset(c.first))
				}
				before := whereIs(s, timer.entry.Place())
				require.True(t, timer.Reset(c.reset))
				after := whereIs(s, timer.entry.Place())
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
		t.Run(name+", at the most pushes", func(t *testing.T) { test(t, engine.MostPushes+1) })
	}
}

// An entry that was pushed back and is pulled forward again moves, though it would not have
// to: where it waits is nowhere written down.
func TestResetBackAndForth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		start := time.Now()
		var fired time.Duration
		timer := w.AfterFunc(time.Second, func() { fired = time.Since(start) })
		require.True(t, timer.Reset(time.Minute))
		require.True(t, timer.Reset(30*time.Second))
		for w.Len() > 0 {
			w.verify(t)
			w.Drive(time.Hour)
		}
		require.Equal(t, 30*time.Second, fired)
	})
}

// Entries that are pushed back while their bucket is in a cascade go where their new time says.
func TestResetInsideACascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		const tasks = 3 * engine.SliceLen
		start := time.Now()
		fired := make([]time.Duration, tasks)
		timers := make([]*Timer, tasks)
		for i := range timers {
			timers[i] = w.AfterFunc(1100*time.Millisecond, func() { fired[i] = time.Since(start) })
			for range i % 3 { // the second Reset and the later ones take no lock
				timers[i].Reset(1100 * time.Millisecond)
			}
		}
		time.Sleep(1024 * time.Millisecond)
		b, ok := w.engine().Driver().Queue.Poll()
		require.True(t, ok)
		w.engine().Driver().Begin(b)
		w.engine().Driver().Hand()
		require.NotEmpty(t, w.engine().Driver().Cascades)
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

// A timer that is pushed back again and again moves once for each bucket that it waits in.
// Levels count no move that is not to a finer one.
func TestResetMovesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(1))
		defer w.Stop()
		var fired atomic.Bool
		timer := w.AfterFunc(10*time.Second, func() { fired.Store(true) })
		before := w.Stats()
		for range 10_000 {
			time.Sleep(10 * time.Millisecond)
			require.True(t, timer.Reset(10*time.Second))
		}
		require.False(t, fired.Load())
		st := w.Stats()
		require.EqualValues(t, 10_000, st.Reset+w.pushes()-before.Reset)
		require.LessOrEqual(t, st.Wakeups-before.Wakeups, int64(25), "100 s, in buckets that expire 9.5 to 10 s ahead")
		require.LessOrEqual(t, st.Cascaded, int64(25))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, fired.Load())
	})
}

func BenchmarkReset(b *testing.B) {
	for name, n := range map[string]int{"hot": 10, "100k": 100_000, "1M": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			w := New()
			defer w.Stop()
			timers := make([]*Timer, n)
			for i := range timers {
				timers[i] = w.AfterFunc(time.Hour, func() {})
			}
			order := rand.New(rand.NewPCG(1, 1)).Perm(n)
			next := 0
			for b.Loop() {
				timers[order[next]].Reset(time.Hour)
				if next++; next == n {
					next = 0
				}
			}
		})
	}
}
