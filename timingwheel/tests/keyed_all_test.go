package timingwheel_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestKeyedAll(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		k := timingwheel.NewKeyed[int](w)
		for range k.All() {
			t.Error("it is empty")
		}
		for key := range 1000 {
			k.Schedule(key, time.Duration(key)*second+1, log.note)
		}
		seen := map[int]bool{}
		for key, at := range k.All() {
			require.False(t, seen[key], "a key came twice")
			seen[key] = true
			if key >= 1000 {
				continue // scheduled by the body below: may come or not
			}
			require.Equal(t, log.start.Add(time.Duration(key)*second+msec), at)
			require.True(t, k.Reset(key, time.Duration(key)*second+msec)) // not at once: it is to be replaced
			replaced, err := k.Schedule(key, time.Duration(key)*second+1, log.note)
			require.NoError(t, err)
			require.True(t, replaced)
			k.Schedule(1000+key, time.Hour, log.note)
		}
		for key := range 1000 {
			require.True(t, seen[key])
		}
		for key := range k.All() {
			require.True(t, k.Cancel(key))
		}
		require.Zero(t, k.Len())
		k.Schedule(1, second, log.note)
		k.Schedule(2, second, log.note)
		for range k.All() {
			break
		}
		w.Stop()
		for range k.All() {
			t.Error("Stop has handed all back")
		}
	})
}

// A function that Drain returns does not run, even if the executor's queue holds it. Stop returns
// only the functions that Drain did not.
func TestKeyedDrain(t *testing.T) {
	var queue []func()
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
	k := timingwheel.NewKeyed[int](w)
	require.Nil(t, k.Drain())
	ran := map[int]int{}
	for key := range 300 {
		d := time.Duration(key) * time.Hour // key 0 is due now
		k.Schedule(key, d, func() { ran[key]++ })
	}
	require.Equal(t, 1, w.Drive(0))
	require.Len(t, queue, 1)
	drained := k.Drain()
	require.Len(t, drained, 300)
	require.Zero(t, k.Len())
	require.Zero(t, w.Len())
	queue[0]()
	require.Empty(t, ran, "the queue had it, but Drain was first")
	seen := map[int]bool{}
	for _, p := range drained {
		require.False(t, seen[p.Key])
		seen[p.Key] = true
		require.WithinDuration(t, time.Now().Add(time.Duration(p.Key)*time.Hour), p.Deadline, time.Minute)
		p.Func()
		require.Equal(t, 1, ran[p.Key], "the function of the key")
	}
	st := w.Stats()
	require.EqualValues(t, 299, st.Stopped)
	require.EqualValues(t, 1, st.Expired)

	k.Schedule(1, time.Hour, noop)
	require.Len(t, k.Drain(), 1, "it works on")
	k.Schedule(2, time.Hour, noop)
	require.Len(t, w.Stop(), 1)
	require.Nil(t, k.Drain(), "Stop has handed it back")
	require.Zero(t, k.Len())
}

// With everything at once, each function runs, or is drained, or is handed back: once.
func TestKeyedDrainRaces(t *testing.T) {
	for round := range 20 {
		w := timingwheel.New(timingwheel.WithTick(10 * time.Microsecond))
		k := timingwheel.NewKeyed[int](w)
		const keys = 2000
		var ran, drained [keys]atomic.Int64
		var wg sync.WaitGroup
		accepted := make([]bool, keys)
		wg.Go(func() {
			for key := range keys {
				_, err := k.Schedule(key, time.Duration(key%50)*10*time.Microsecond, func() { ran[key].Add(1) })
				accepted[key] = err == nil
			}
		})
		for range 2 {
			wg.Go(func() {
				for range 20 {
					for _, p := range k.Drain() {
						drained[p.Key].Add(1)
					}
					for key := range k.All() {
						if key%7 == 0 && k.Cancel(key) {
							drained[key].Add(1)
						}
					}
				}
			})
		}
		if round%2 == 0 {
			wg.Go(func() {
				for _, p := range w.Stop() {
					p.Func()
				}
			})
		}
		wg.Wait()
		for _, p := range k.Drain() {
			drained[p.Key].Add(1)
		}
		require.NoError(t, w.Shutdown(t.Context()))
		for key := range keys {
			want := int64(0)
			if accepted[key] {
				want = 1
			}
			require.Equal(t, want, ran[key].Load()+drained[key].Load(), key)
		}
	}
}
