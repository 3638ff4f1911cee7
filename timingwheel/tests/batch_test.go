package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// A batch runs in the order of its ticks and, within a tick, in the order of the batch. Tasks that
// were scheduled before and after it run in the same order.
func TestScheduleBatch(t *testing.T) {
	for _, size := range []int{1, 10, engine.SliceLen, engine.SliceLen + 1, 3*engine.SliceLen + 7} {
		synctest.Test(t, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithShards(1), timingwheel.WithExecutor(timingwheel.Inline()))
			defer w.Stop()
			var ran []int
			note := func(n int) func() { return func() { ran = append(ran, n) } }
			w.Schedule(2*msec, note(-1))
			batch := make([]timingwheel.Delayed, size)
			for i := range batch {
				batch[i] = timingwheel.Delayed{After: time.Duration(1+i/150) * msec, Func: note(i)}
			}
			var dst [1]timingwheel.Timeout
			timeouts, err := w.ScheduleBatch(dst[:], batch)
			require.NoError(t, err)
			require.Len(t, timeouts, size+1, "appended")
			w.Schedule(2*msec, note(size))
			require.Equal(t, size+2, w.Len())
			clear(batch) // its user may use it again
			require.True(t, timeouts[size/2+1].Cancel())

			time.Sleep(second)
			synctest.Wait()
			var want []int
			for i := range size {
				if i == 150 {
					want = append(want, -1) // before the batch, on the second tick
				}
				if i == 300 {
					want = append(want, size) // and after it
				}
				if i != size/2 {
					want = append(want, i)
				}
			}
			if size <= 150 {
				want = append(want, -1)
			}
			if size <= 300 {
				want = append(want, size)
			}
			require.Equal(t, want, ran)
			verify(t, w)
		})
	}
}

func TestScheduleBatchAllOrNone(t *testing.T) {
	w := timingwheel.New(timingwheel.WithMaxPending(1000), timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
	batch := slices.Repeat([]timingwheel.Delayed{{After: time.Hour, Func: noop}}, 600)
	first, err := w.ScheduleBatch(nil, batch)
	require.NoError(t, err)
	second, err := w.ScheduleBatch(first, batch)
	require.Equal(t, timingwheel.ErrTooManyPending, err)
	require.Equal(t, first, second)
	require.Equal(t, 600, w.Len())
	require.EqualValues(t, 600, w.Stats().Rejected)
	_, err = w.ScheduleBatch(nil, batch[:400])
	require.NoError(t, err, "the last places, exactly")
	verify(t, w)

	batch[599].Func = nil
	require.PanicsWithValue(t, "timingwheel: ScheduleBatch: nil function, number 599", func() { w.ScheduleBatch(nil, batch) })
	require.Equal(t, 1000, w.Len())
	require.True(t, first[0].Cancel())
	due, err := w.ScheduleBatch(nil, []timingwheel.Delayed{{After: -1, Func: noop}})
	require.NoError(t, err)
	require.Equal(t, 1, w.Drive(0), "due now")
	require.False(t, due[0].Cancel())
	empty, err := w.ScheduleBatch(nil, nil)
	require.NoError(t, err)
	require.Empty(t, empty)

	require.Len(t, w.Stop(), 999)
	none, err := w.ScheduleBatch(nil, batch[:1])
	require.Equal(t, timingwheel.ErrStopped, err)
	require.Empty(t, none)
	w.ScheduleBatch(nil, nil)
	verify(t, w)
}

// Stop either comes before a batch or hands back all of it.
func TestScheduleBatchRacesWithStop(t *testing.T) {
	const size = 200 * engine.SliceLen // long enough for Stop to get the lock between two slices
	before, after := 0, 0
	for range unlessShort(20, 6) {
		w := timingwheel.New()
		batch := slices.Repeat([]timingwheel.Delayed{{After: time.Hour, Func: noop}}, size)
		var timeouts []timingwheel.Timeout
		var err error
		var adder sync.WaitGroup
		adder.Go(func() { timeouts, err = w.ScheduleBatch(nil, batch) })
		for range 1000 {
			if w.Len() > 0 { // or give up, since another order is one to test, too
				break
			}
			runtime.Gosched()
		}
		pending := w.Stop()
		adder.Wait()
		if err == nil {
			after++
			require.Equal(t, size, len(pending)) // Len would print them
			require.Equal(t, size, len(timeouts))
		} else {
			before++
			require.Equal(t, timingwheel.ErrStopped, err)
			require.Zero(t, len(pending), "a part was handed back, and the batch refused")
		}
	}
	t.Log("refused:", before, "handed back:", after)
}

// The delays count from the call, though it has to wait for the lock. And Stop waits for a
// batch of more than a slice.
func TestScheduleBatchThatWaitsForTheLock(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(1))
	unlock := lockShard(t, w)
	added := make(chan []timingwheel.Timeout)
	go func() {
		timeouts, _ := w.ScheduleBatch(nil, slices.Repeat([]timingwheel.Delayed{{After: time.Hour, Func: noop}}, engine.SliceLen+1))
		added <- timeouts
	}()
	waitForCallers(t, 1)
	called := time.Now()
	stopped := make(chan []timingwheel.Pending)
	go func() { stopped <- w.Stop() }()
	waitFor(t, func() bool { return blocked("sync.Mutex.Lock")+blocked("sync.RWMutex.Lock") == 2 })
	stopHasToWait := blocked("sync.RWMutex.Lock") == 1 // or it could come between two slices
	time.Sleep(20 * time.Millisecond)
	unlock()
	require.Len(t, <-added, engine.SliceLen+1)
	pending := <-stopped
	require.True(t, stopHasToWait)
	require.Len(t, pending, engine.SliceLen+1)
	for _, p := range pending {
		require.LessOrEqual(t, p.Deadline.Sub(called), time.Hour+time.Millisecond)
	}
}

func TestScheduleBatchAllocations(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	batch := slices.Repeat([]timingwheel.Delayed{{After: time.Hour, Func: noop}}, 100)
	dst := make([]timingwheel.Timeout, 0, len(batch))
	_, err := w.ScheduleBatch(nil, batch) // keeps the chunk and the bucket in being
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		timeouts, _ := w.ScheduleBatch(dst, batch)
		for _, timeout := range timeouts {
			timeout.Cancel()
		}
	}))
}

// The time that an entry takes in a batch, beside that of Schedule in the same round.
func BenchmarkScheduleBatch(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := timingwheel.New()
			defer w.Stop()
			batch := slices.Repeat([]timingwheel.Delayed{{After: time.Hour, Func: noop}}, size)
			timeouts := make([]timingwheel.Timeout, 0, size)
			var single, together time.Duration
			measure := func(sum *time.Duration, add func()) {
				start := time.Now()
				add()
				*sum += time.Since(start)
				for _, timeout := range timeouts {
					timeout.Cancel()
				}
				timeouts = timeouts[:0]
			}
			for b.Loop() {
				measure(&single, func() {
					for i := range batch {
						timeout, _ := w.Schedule(batch[i].After, batch[i].Func)
						timeouts = append(timeouts, timeout)
					}
				})
				measure(&together, func() { timeouts, _ = w.ScheduleBatch(timeouts, batch) })
			}
			entries := float64(b.N * size)
			b.ReportMetric(float64(single)/entries, "Schedule-ns/entry")
			b.ReportMetric(float64(together)/entries, "batch-ns/entry")
			b.ReportMetric(float64(together)/float64(single), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
