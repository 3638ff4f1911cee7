package timingwheel_test

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// everyHour are the ways in which something comes again and again. Each calls f once an hour.
func everyHour(t *testing.T, w *timingwheel.TimingWheel) map[string]func(f func()) {
	keyed, group := timingwheel.NewKeyed[string](w), timingwheel.NewGroup(w)
	again := func(schedule func(func())) func(f func()) {
		return func(f func()) {
			var next func()
			next = func() { f(); schedule(next) }
			schedule(next)
		}
	}
	return map[string]func(f func()){
		"ScheduleAtFixedRate":    func(f func()) { mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, f)) },
		"ScheduleWithFixedDelay": func(f func()) { mustJob(t)(w.ScheduleWithFixedDelay(time.Hour, time.Hour, f)) },
		"ScheduleFunc":           func(f func()) { mustJob(t)(w.ScheduleFunc(hourly{}, f)) },
		"Timer.Reset": func(f func()) {
			made := make(chan *timingwheel.Timer, 1)
			made <- w.AfterFunc(time.Hour, func() { f(); timer := <-made; timer.Reset(time.Hour); made <- timer })
		},
		"Schedule": again(func(f func()) { w.Schedule(time.Hour, f) }),
		"Keyed":    again(func(f func()) { keyed.Schedule("key", time.Hour, f) }),
		"Group":    again(func(f func()) { group.Schedule(time.Hour, f) }),
		"Submit": again(func(f func()) {
			timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { f(); return 0, nil })
		}),
	}
}

type hourly struct{}

func (hourly) Next(prev time.Time) time.Time { return prev.Truncate(time.Hour).Add(time.Hour) }

// In virtual time functions run as often as in real time, and see their own time, whichever executor
// runs them.
func TestAdvanceWaitsForWhatItStarts(t *testing.T) {
	all := executors()
	for name := range all {
		if name == "pool, block" { // excluded with a manual clock
			continue
		}
		t.Run(name, func(t *testing.T) {
			x := all[name]
			w := timingwheel.New(timingwheel.WithManualClock(moonLanding.Truncate(time.Hour)), timingwheel.WithExecutor(x))
			defer w.Stop()
			ways := everyHour(t, w)
			if strings.Contains(name, "discard") {
				delete(ways, "Submit") // a Future that is discarded does not run
			}
			var runs atomic.Int64
			for _, start := range ways {
				start(func() {
					if now := w.Now(); !now.Equal(now.Truncate(time.Hour)) {
						t.Error("not its own time: ", now)
					}
					runtime.Gosched()
					runs.Add(1)
				})
			}
			for day := range 3 {
				require.Equal(t, 24*len(ways), w.Advance(24*time.Hour))
				require.EqualValues(t, (day+1)*24*len(ways), runs.Load())
				require.Zero(t, w.Stats().Running)
				require.Equal(t, len(ways), w.Len(), "all are scheduled again")
			}
			verify(t, w)
		})
	}
}

// The default executor is no exception. And nothing that ends at a deadline is still to end when
// Advance returns.
func TestAdvanceWaitsForWhatEnds(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualClock(moonLanding))
	defer w.Stop()
	parent, cancel := w.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	child, cancel := context.WithCancel(parent)
	defer cancel()
	done := parent.Done()
	watches := purgatory.New[string](w)
	var expired atomic.Int64
	op, err := watches.Park(time.Hour, func() bool { return false }, func(purgatory.Outcome) { expired.Add(1) }, "key")
	require.NoError(t, err)
	future, err := timingwheel.Submit(w, time.Hour, func(context.Context) (time.Time, error) { return w.Now(), nil })
	require.NoError(t, err)
	plain := 0
	w.Schedule(time.Hour, func() { plain++ })
	w.Advance(time.Hour - 1)
	require.Zero(t, plain)
	require.Equal(t, purgatory.Pending, op.Outcome())
	w.Advance(1)
	require.Equal(t, 1, plain)
	require.EqualValues(t, 1, expired.Load())
	require.Zero(t, watches.Stats().Pending)
	for name, ended := range map[string]<-chan struct{}{"context": done, "child": child.Done(), "future": future.Done()} {
		select {
		case <-ended:
		default:
			t.Error("not ended: ", name)
		}
	}
	at, err := future.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, moonLanding.Add(time.Hour), at)
	require.Zero(t, w.Stats().Running)
}

// Functions that wait for one another, and for what is due at the same time, run as in real time.
func TestAdvanceOverFunctionsThatWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualClock(moonLanding), timingwheel.WithShards(4))
		defer w.Stop()
		start := time.Now()
		meet := make(chan int)
		var met atomic.Int64
		for i := range 600 { // more than a slice
			w.Schedule(time.Hour, func() {
				if i%2 == 0 {
					meet <- i
				} else {
					<-meet
					met.Add(1)
				}
			})
		}
		w.Advance(time.Hour)
		require.EqualValues(t, 300, met.Load())
		require.Zero(t, time.Since(start), "it waited for nobody")
	})
}

// Advance goes on without a function that blocks: it does not hang, and the others run as ever.
func TestAdvanceOverAFunctionThatBlocks(t *testing.T) {
	for name, executor := range map[string]func() timingwheel.Executor{
		"goroutines": timingwheel.Goroutines,
		"pool":       func() timingwheel.Executor { return pool.New(2, 100, pool.CallerRuns) },
		"func":       func() timingwheel.Executor { return timingwheel.ExecutorFunc(func(task func()) { go task() }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := timingwheel.New(timingwheel.WithManualClock(moonLanding), timingwheel.WithExecutor(executor()))
				release := make(chan struct{})
				ended := false
				w.Schedule(time.Minute, func() { <-release; ended = true })
				var runs atomic.Int64
				mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, func() { runs.Add(1) }))
				start := time.Now()
				w.Advance(240 * time.Hour)
				require.EqualValues(t, 240, runs.Load())
				require.Less(t, time.Since(start), 2*time.Second, "real time")
				require.EqualValues(t, 1, w.Stats().Running)
				close(release)
				require.NoError(t, w.Shutdown(t.Context()))
				require.True(t, ended)
			})
		})
	}
}

// A function may wait for a later time of its own wheel. Each of them costs real time, and the more
// there are, the less.
func TestAdvanceOverFunctionsThatSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualClock(moonLanding))
		defer w.Stop()
		var woke []time.Duration
		mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, func() {
			w.Sleep(time.Minute)
			<-w.After(time.Minute)
			ctx, cancel := w.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			<-ctx.Done()
			woke = append(woke, w.Now().Sub(moonLanding))
		}))
		start := time.Now()
		w.Advance(1000*time.Hour + 3*time.Minute)
		require.Len(t, woke, 1000)
		for i, at := range woke {
			require.Equal(t, time.Duration(i+1)*time.Hour+3*time.Minute, at)
		}
		require.Less(t, time.Since(start), time.Minute, "real time")
	})
}

// A function that advances its own wheel waits for its turn, which comes.
func TestAdvanceInsideAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualClock(moonLanding))
		defer w.Stop()
		w.Schedule(time.Minute, func() { w.Advance(time.Hour) })
		w.Advance(time.Hour)
		time.Sleep(time.Minute)
		require.Equal(t, moonLanding.Add(2*time.Hour), w.Now())
	})
}

// A function that stops the wheel, or ends its goroutine, is waited for as any other.
func TestAdvanceOverEndings(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualClock(moonLanding))
	goexits := 0
	w.Schedule(time.Minute, func() { goexits++; runtime.Goexit() })
	w.Schedule(2*time.Minute, func() { w.Schedule(time.Minute, mustNotRun); w.Stop() })
	w.Advance(time.Hour)
	require.Equal(t, 1, goexits)
	require.Equal(t, moonLanding.Add(2*time.Minute), w.Now(), "the wheel was stopped then")
	require.Zero(t, w.Advance(time.Hour))
}
