package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"

	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// During Shutdown a timer may be brought forward, and is not pushed back after that either.
func TestNoPushBackDuringShutdown(t *testing.T) {
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	timer := w.AfterFunc(time.Hour, noop)
	require.True(t, timer.Reset(3*time.Hour))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, w.Shutdown(ended))
	require.False(t, timer.Reset(4*time.Hour))
	require.True(t, timer.Reset(2*time.Hour))
	at, ok := timer.Deadline()
	require.True(t, ok)
	require.False(t, timer.Reset(3*time.Hour))
	again, _ := timer.Deadline()
	require.Equal(t, at, again)
	require.True(t, timer.Stop())
}

// The longest delay, in the shortest ticks, fits into the word.
func TestLazyTaskOfTheLongestDelay(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond))
	defer w.Stop()
	timer := w.AfterFunc(time.Hour, noop)
	for range 3 {
		require.True(t, timer.Reset(1<<63-1))
	}
	at, ok := timer.Deadline()
	require.True(t, ok)
	require.Greater(t, time.Until(at), 292*365*24*time.Hour)
	require.Equal(t, at, w.Snapshot(1).Next[0])
}

// Pushes that come at the very moment of the deadline either win, and then the timer is
// pending still, or lose, and then it has fired and is armed anew. None gets lost, and none
// fires twice.
func TestPushBackAtTheDeadline(t *testing.T) {
	const timers, rounds = 8, 300
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(2))
	defer w.Stop()
	var all sync.WaitGroup
	var fired, armed atomic.Int64
	for n := range timers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(n)))
			armed.Add(1)
			timer := w.AfterFunc(time.Millisecond, func() { fired.Add(1) })
			for range rounds {
				d := time.Duration(r.IntN(200)) * time.Microsecond
				for end := (*engine.Engine)(w).Clock().Now() + d; (*engine.Engine)(w).Clock().Now() < end; {
				}
				if !timer.Reset(200 * time.Microsecond) {
					armed.Add(1)
				}
			}
		})
	}
	all.Wait()
	waitFor(t, func() bool { return w.Len() == 0 && fired.Load() == armed.Load() })
	requireAccounts(t, w.Stats())
}

// Many goroutines reset and stop the same timers, later and earlier, while these fire. Each armed
// timer fired or was stopped, once.
func TestPushBackFromEverywhere(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(2), timingwheel.WithShards(1))
	defer w.Stop()
	const timers, goroutines = 4, 8
	var fired, armed, stopped atomic.Int64
	var set [timers]*timingwheel.Timer
	for i := range set {
		armed.Add(1)
		set[i] = w.AfterFunc(time.Millisecond, func() { fired.Add(1) })
	}
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(g)))
			for range 3000 {
				timer := set[r.IntN(timers)]
				if r.IntN(20) == 0 {
					if timer.Stop() {
						stopped.Add(1)
					}
				} else if !timer.Reset(time.Duration(r.IntN(300)) * time.Microsecond) {
					armed.Add(1)
				}
			}
		})
	}
	all.Wait()
	waitFor(t, func() bool { return w.Len() == 0 && fired.Load()+stopped.Load() == armed.Load() })
	st := w.Stats()
	require.Equal(t, armed.Load(), st.Scheduled)
	require.Equal(t, stopped.Load(), st.Stopped)
	require.EqualValues(t, timers+goroutines*3000, st.Reset+armed.Load()+stopCalls(goroutines, 3000), "each reset is counted once")
}

// stopCalls counts how often TestPushBackFromEverywhere calls Stop.
func stopCalls(goroutines, n int) (calls int64) {
	for g := range goroutines {
		r := rand.New(rand.NewPCG(2, uint64(g)))
		for range n {
			r.IntN(4)
			if r.IntN(20) == 0 {
				calls++
			} else {
				r.IntN(300)
			}
		}
	}
	return calls
}

// Goroutines push their timers back while the wheel stops, or begins to shut down. The last
// Reset that returned true counts: that deadline is handed back, once. From the first that
// returned false on, all others do.
func TestPushBackBesideTheEnd(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, end := range map[string]func(w *timingwheel.TimingWheel) []timingwheel.Pending{
		"Stop": (*timingwheel.TimingWheel).Stop,
		"Shutdown": func(w *timingwheel.TimingWheel) []timingwheel.Pending {
			require.Error(t, w.Shutdown(ended))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				pushBackBesideTheEnd(t, end)
			}
		})
	}
}

func pushBackBesideTheEnd(t *testing.T, end func(w *timingwheel.TimingWheel) []timingwheel.Pending) {
	const timers = 4
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithShards(2))
	var earliest, latest [timers]time.Time
	var resets atomic.Int64
	var all sync.WaitGroup
	found := -1
	for i := range timers {
		earliest[i] = time.Now().Add(time.Hour)
		timer := w.AfterFunc(time.Hour, func() { found = i })
		latest[i] = time.Now().Add(time.Hour + time.Microsecond)
		all.Go(func() {
			for n := 1; ; n++ {
				d := time.Hour + time.Duration(n)*time.Second
				before := time.Now().Add(d)
				if !timer.Reset(d) {
					break
				}
				earliest[i], latest[i] = before, time.Now().Add(d+time.Microsecond)
				resets.Add(1)
			}
			for range 10 {
				require.False(t, timer.Reset(1000*time.Hour))
			}
		})
	}
	waitFor(t, func() bool { return resets.Load() > 3*timers })
	pending := end(w)
	all.Wait()
	pending = append(pending, w.Stop()...)
	require.Len(t, pending, timers)
	for _, p := range pending {
		p.Func()
		require.False(t, p.Deadline.Before(earliest[found]), "earlier than promised")
		require.False(t, p.Deadline.After(latest[found]), "a Reset that returned false counts")
		earliest[found] = p.Deadline.Add(time.Hour) // it is not to be found again
	}
	st := w.Stats()
	require.Equal(t, resets.Load(), st.Reset)
	requireAccounts(t, st)
}
