package timingwheel

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// A Timer that was reset once is pushed back without a lock: also while somebody has it.
func TestPushBackTakesNoLock(t *testing.T) {
	w := New(WithShards(1))
	defer w.Stop()
	timer := w.AfterFunc(time.Hour, noop)
	require.True(t, timer.Reset(time.Hour))
	w.engine().Shards()[0].Mu.Lock()
	for range engine.MostPushes {
		require.True(t, timer.Reset(2*time.Hour))
	}
	w.engine().Shards()[0].Mu.Unlock()
	require.True(t, timer.Reset(2*time.Hour), "this one takes the lock")
	require.EqualValues(t, engine.MostPushes+2, w.Stats().Reset)
	at, ok := timer.Deadline()
	require.True(t, ok)
	require.Greater(t, time.Until(at), 90*time.Minute)
	require.True(t, timer.Stop())
	require.False(t, timer.Reset(time.Hour), "it is not pending")
	require.True(t, timer.Stop())
}

func TestLazyTask(t *testing.T) {
	c := engine.NewClock(time.Millisecond)
	in := func(d time.Duration) engine.Delay { return engine.Delay{Now: time.Second, D: d} }
	l := &engine.LazyTask{F: noop}
	require.Same(t, l, engine.LazyOf(engine.Disguise(l)))
	require.False(t, l.PushBack(&c, in(time.Second)), "the entry has the deadline")
	l.Keep(5000)
	require.False(t, l.PushBack(&c, in(3999*time.Millisecond)), "an earlier time")
	require.True(t, l.PushBack(&c, in(4*time.Second)), "the same")
	require.True(t, l.PushBack(&c, in(9*time.Second)))
	require.False(t, l.PushBack(&c, in(0)))
	require.False(t, l.PushBack(&c, in(-1)))
	_, ok := l.Fall(5000)
	require.False(t, ok, "it was pushed back")
	deadline, kept := l.Deadline()
	require.True(t, kept)
	require.EqualValues(t, 10_000, deadline)
	pushes, ok := l.Fall(10_000)
	require.True(t, ok)
	require.EqualValues(t, 2, pushes)
	require.False(t, l.PushBack(&c, in(time.Hour)))
	l.Keep(1000) // the tick that it is now
	require.False(t, l.PushBack(&c, in(0)), "now, without rounding")
	require.True(t, l.PushBack(&c, in(1)))
	_, _, kept = l.GiveBack()
	require.True(t, kept)
	_, _, kept = l.GiveBack()
	require.False(t, kept)
}

// During Shutdown a timer may be brought forward, and is not pushed back after that either.
func TestNoPushBackDuringShutdown(t *testing.T) {
	w := New(WithShards(1))
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
	w := New(WithTick(time.Microsecond))
	defer w.Stop()
	timer := w.AfterFunc(time.Hour, noop)
	for range 3 {
		require.True(t, timer.Reset(1<<63-1))
	}
	at, ok := timer.Deadline()
	require.True(t, ok)
	require.Equal(t, w.engine().Clock().Time(w.engine().Clock().Deadline(0, 1<<63-1)), at)
	require.Equal(t, at, w.Snapshot(1).Next[0])
}

// Pushes that come at the very moment of the deadline either win, and then the timer is
// pending still, or lose, and then it has fired and is armed anew. None gets lost, and none
// fires twice.
func TestPushBackAtTheDeadline(t *testing.T) {
	const timers, rounds = 8, 300
	w := New(WithTick(time.Microsecond), WithWheelSize(2))
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
				for end := w.engine().Clock().Now() + d; w.engine().Clock().Now() < end; {
				}
				if !timer.Reset(200 * time.Microsecond) {
					armed.Add(1)
				}
			}
		})
	}
	all.Wait()
	waitUntil(t, func() bool { return w.Len() == 0 && fired.Load() == armed.Load() })
	requireAccounts(t, w.Stats())
}

// Many goroutines reset and stop the same timers, later and earlier, while these fire. What
// was armed has fired or was stopped, each once.
func TestPushBackFromEverywhere(t *testing.T) {
	w := New(WithTick(time.Microsecond), WithWheelSize(2), WithShards(1))
	defer w.Stop()
	const timers, goroutines = 4, 8
	var fired, armed, stopped atomic.Int64
	var set [timers]*Timer
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
	waitUntil(t, func() bool { return w.Len() == 0 && fired.Load()+stopped.Load() == armed.Load() })
	st := w.Stats()
	require.Equal(t, armed.Load(), st.Scheduled)
	require.Equal(t, stopped.Load(), st.Canceled)
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
	for name, end := range map[string]func(w *TimingWheel) []Pending{
		"Stop": (*TimingWheel).Stop,
		"Shutdown": func(w *TimingWheel) []Pending {
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

func pushBackBesideTheEnd(t *testing.T, end func(w *TimingWheel) []Pending) {
	const timers = 4
	w := New(WithTick(time.Microsecond), WithShards(2))
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
	waitUntil(t, func() bool { return resets.Load() > 3*timers })
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

// No push is lost to whoever takes the deadline back at that moment: each that was true is
// counted once.
func TestPushesBesideTheirEnd(t *testing.T) {
	c := engine.NewClock(time.Millisecond)
	for name, end := range map[string]func(l *engine.LazyTask) (pushes int64, ended bool){
		"GiveBack": func(l *engine.LazyTask) (int64, bool) {
			_, pushes, _ := l.GiveBack()
			return pushes, true
		},
		"Fall": func(l *engine.LazyTask) (int64, bool) {
			deadline, _ := l.Deadline()
			pushes, ok := l.Fall(deadline)
			if !ok {
				return 0, false
			}
			return pushes, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &engine.LazyTask{F: noop}
			var stop atomic.Bool
			var pushed int64
			var all sync.WaitGroup
			all.Go(func() {
				for !stop.Load() {
					if l.PushBack(&c, engine.Delay{D: time.Hour}) {
						pushed++
					}
				}
			})
			counted := int64(0)
			for deadline := time.Now().Add(50 * time.Millisecond); time.Now().Before(deadline); {
				l.Keep(1)
				for l.Word.Load()&engine.MostPushes == 0 { // until the other is pushing
					runtime.Gosched()
				}
				for ended := false; !ended; {
					var n int64
					n, ended = end(l)
					counted += n
				}
			}
			stop.Store(true)
			all.Wait()
			require.Equal(t, pushed, counted)
		})
	}
}
