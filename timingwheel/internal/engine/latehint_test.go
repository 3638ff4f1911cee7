package engine

import (
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPulse(t *testing.T) {
	var p lateHint
	p.next(math.MaxInt64)
	require.False(t, p.isLate(farOff-1))
	require.True(t, p.isLate(-1), "no time of the wheel")
	p.expect(time.Second)
	require.False(t, p.isLate(time.Second+grace))
	require.True(t, p.isLate(time.Second+grace+1))
	p.expect(time.Minute)
	require.True(t, p.isLate(2*time.Second), "the earlier time counts")
	p.next(2 * time.Second)
	require.False(t, p.isLate(2*time.Second))
	require.True(t, p.isLate(time.Minute))
}

// The pulse follows what the wheel holds, whoever adds it.
func TestPulseOfAWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withShards(1))
		defer w.Stop()
		lateAfter := func() time.Duration {
			synctest.Wait()
			return time.Duration(w.driver.lateHint.lateAfter.Load())
		}
		const never = time.Duration(farOff - 1)
		require.Equal(t, never, lateAfter(), "nothing is pending")
		w.Schedule(100*time.Millisecond, noop)
		require.Equal(t, 100*time.Millisecond+grace, lateAfter())
		w.Schedule(200*time.Millisecond, noop)
		require.Equal(t, 100*time.Millisecond+grace, lateAfter())
		canceled, _ := w.Schedule(50*time.Millisecond, noop)
		require.Equal(t, 50*time.Millisecond+grace, lateAfter())
		canceled.Cancel()
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, 200*time.Millisecond+grace, lateAfter())
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, never, lateAfter())
		w.Schedule(time.Second, noop)
		w.Stop()
		require.Equal(t, never, lateAfter(), "after Stop nothing is late")
	})
}

// On one processor, a goroutine that adds without a pause lets the driver run when something
// is due. One that computes does so only when it is taken off the processor. Here it only
// does what each add does first: with the race detector, an add takes too long. What counts
// is how often it does so while the driver is late, and no time: on a busy machine other
// programs have the processor most of the time.
func TestCallersYieldToALateDriver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const oneOf = 64 // what computes does some thousand rounds also on a busy machine
	w := newTestWheel()
	defer w.Stop()
	w.driver.lateHint.oneOf = oneOf
	late := func(loop func(now time.Duration)) int {
		var all []int
		for range 9 {
			var fired atomic.Bool
			n, after := 0, w.clock.Now()+2*time.Millisecond
			w.AfterFunc(2*time.Millisecond, func() { fired.Store(true) })
			for !fired.Load() {
				now := w.clock.Now()
				if now > after+w.clock.tick+grace {
					n++
				}
				loop(now)
			}
			all = append(all, n)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	atLeastOnce(t, func() bool {
		computing, adding := late(func(time.Duration) {}), late(func(now time.Duration) { w.HereAt(now) })
		t.Logf("late for %d calls, and beside one that computes for %d rounds", adding, computing)
		return adding < 8*oneOf
	})
}

// A driver that is behind but at work is not late: nobody has to yield to it.
func TestPulseOfADriverAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withShards(1))
		defer w.Stop()
		s, late := &w.shards[0], true
		addOwn(s, 100*time.Millisecond, func() { time.Sleep(10 * time.Millisecond) })
		addOwn(s, 101*time.Millisecond, func() { late = w.driver.lateHint.isLate(w.clock.Now()) })
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, late)
	})
}
