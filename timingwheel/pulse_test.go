package timingwheel

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

func TestPulse(t *testing.T) {
	var p engine.LateHint
	p.Next(math.MaxInt64)
	require.False(t, p.IsLate(math.MaxInt64))
	p.Expect(time.Second)
	require.False(t, p.IsLate(time.Second+engine.Grace))
	require.True(t, p.IsLate(time.Second+engine.Grace+1))
	p.Expect(time.Minute)
	require.True(t, p.IsLate(2*time.Second), "the earlier time counts")
	p.Next(2 * time.Second)
	require.False(t, p.IsLate(2*time.Second))
	require.True(t, p.IsLate(time.Minute))
}

// The pulse follows what the wheel holds, whoever adds it.
func TestPulseOfAWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(1))
		defer w.Stop()
		lateAfter := func() time.Duration {
			synctest.Wait()
			return time.Duration(w.engine().Driver().LateHint.LateAfter.Load())
		}
		const never = time.Duration(math.MaxInt64)
		require.Equal(t, never, lateAfter(), "nothing is pending")
		w.Schedule(100*time.Millisecond, noop)
		require.Equal(t, 100*time.Millisecond+engine.Grace, lateAfter())
		w.Schedule(200*time.Millisecond, noop)
		require.Equal(t, 100*time.Millisecond+engine.Grace, lateAfter())
		canceled, _ := w.Schedule(50*time.Millisecond, noop)
		require.Equal(t, 50*time.Millisecond+engine.Grace, lateAfter())
		canceled.Cancel()
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, 200*time.Millisecond+engine.Grace, lateAfter())
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, never, lateAfter())
		w.Schedule(time.Second, noop)
		w.Stop()
		require.Equal(t, never, lateAfter(), "after Stop nothing is late")
	})
}

// Whoever drives by hand may be as late as he likes.
func TestPulseOfAManualWheel(t *testing.T) {
	for _, w := range []*TimingWheel{New(WithManualDrive()), New(WithManualClock(time.Now()))} {
		w.Schedule(time.Millisecond, noop)
		w.Schedule(0, noop)
		require.False(t, w.engine().Driver().LateHint.IsLate(time.Hour))
		w.Stop()
	}
}

// On one processor, a goroutine that adds without a pause lets the driver run when something
// is due. One that computes does so only when it is taken off the processor. Here it only
// does what each add does first: with the race detector, an add takes too long. What counts
// is how often it does so while the driver is late, and no time: on a busy machine other
// programs have the processor most of the time.
func TestCallersYieldToALateDriver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const oneOf = 64 // what computes does some thousand rounds also on a busy machine
	w := New()
	defer w.Stop()
	w.engine().Driver().LateHint.OneOf = oneOf
	late := func(loop func(now time.Duration)) int {
		var all []int
		for range 9 {
			var fired atomic.Bool
			n, after := 0, w.engine().Clock().Now()+2*time.Millisecond
			w.AfterFunc(2*time.Millisecond, func() { fired.Store(true) })
			for !fired.Load() {
				now := w.engine().Clock().Now()
				if now > after+w.engine().Clock().Tick+engine.Grace {
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
		computing, adding := late(func(time.Duration) {}), late(w.engine().Yield)
		t.Logf("late for %d calls, and beside one that computes for %d rounds", adding, computing)
		return adding < 8*oneOf
	})
}

// Every call that adds lets others run first if the driver is late, and none does so if it is
// not. On one processor, a goroutine that was just started tells: it runs during the call
// only if the caller yields.
func TestEveryAddYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 100
	for name, add := range map[string]func(w *TimingWheel){
		"AfterFunc":     func(w *TimingWheel) { w.AfterFunc(time.Hour, noop) },
		"NewTimer":      func(w *TimingWheel) { w.NewTimer(time.Hour) },
		"Schedule":      func(w *TimingWheel) { w.Schedule(time.Hour, noop) },
		"ScheduleAt":    func(w *TimingWheel) { w.ScheduleAt(time.Now().Add(time.Hour), noop) },
		"ScheduleBatch": func(w *TimingWheel) { w.ScheduleBatch(nil, []Delayed{{time.Hour, noop}}) },
		"Park":          func(w *TimingWheel) { park(w, time.Hour, &parkedOp{silent: true}) },
		"WithTimeout":   func(w *TimingWheel) { w.WithTimeout(context.Background(), time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			w := New(WithManualDrive(), WithShards(1))
			defer w.Stop()
			w.engine().Driver().LateHint.OneOf = 1
			yields := func(lateAfter int64) (n int) {
				w.engine().Driver().LateHint.LateAfter.Store(lateAfter)
				for range rounds {
					var ran atomic.Bool
					go ran.Store(true)
					add(w)
					if ran.Load() {
						n++
					}
					for !ran.Load() {
						runtime.Gosched()
					}
				}
				return n
			}
			require.Greater(t, yields(math.MinInt64), rounds/2, "the driver is late")
			require.Less(t, yields(math.MaxInt64), rounds/2, "it is not") // it may be interrupted
			require.Equal(t, 2*rounds, w.Len())
		})
	}
}

// A driver that is behind but at work is not late: nobody has to yield to it.
func TestPulseOfADriverAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(1))
		defer w.Stop()
		s, late := &w.engine().Shards()[0], true
		addOwn(s, 100*time.Millisecond, func() { time.Sleep(10 * time.Millisecond) })
		addOwn(s, 101*time.Millisecond, func() { late = w.engine().Driver().LateHint.IsLate(w.engine().Clock().Now()) })
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, late)
	})
}
