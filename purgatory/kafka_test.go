package purgatory

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The tests below state the behaviors that the tests of Kafka's purgatory require, and the faults
// that it is known to have had, each with the number of its report or its repair.

// within fails the test if f takes for ever.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		buf := make([]byte, 1<<20)
		t.Fatalf("hangs:\n%s", buf[:runtime.Stack(buf, true)])
	}
}

func TestKafkaCompletionByKey(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		ready := map[int]bool{}
		for _, key := range []int{1, 2} {
			_, err := p.Park(10*time.Second, func() bool { return ready[key] }, nil, key)
			require.NoError(t, err)
		}
		require.Zero(t, p.Notify(1), "nothing is ready")
		ready[1] = true
		require.Equal(t, 1, p.Notify(1))
		require.Zero(t, p.Notify(1), "it is gone")
		ready[2] = true
		require.Equal(t, 1, p.Notify(2))
		require.Zero(t, p.Notify(2))
	})
}

func TestKafkaExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		start := time.Now()
		var at time.Duration
		o, err := p.Park(20*time.Millisecond, never, func(Outcome) { at = time.Since(start) }, 1)
		require.NoError(t, err)
		neighbour, err := p.Park(200*time.Second, nil, nil, 1)
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, Expired, o.Outcome())
		require.GreaterOrEqual(t, at, 20*time.Millisecond, "never early")
		require.Equal(t, Pending, neighbour.Outcome())
		require.Equal(t, 1, p.Notify(1))
		require.Equal(t, Satisfied, neighbour.Outcome())
	})
}

func TestKafkaSomeNowSomeLaterSomeNever(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		const n = 300
		ready := make([]bool, n)
		var e ends
		for i := range n {
			ready[i] = i%3 == 0
			_, err := p.Park(time.Second, func() bool { return ready[i] }, e.done, i%10, 10+i)
			require.NoError(t, err)
		}
		require.EqualValues(t, n/3, p.verify(t).Immediate)
		for i := range n {
			ready[i] = i%3 != 2
		}
		ended := 0
		for key := range 10 {
			ended += p.Notify(key)
		}
		require.Equal(t, n/3, ended)
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, n/3, p.verify(t).Expired)
		require.Len(t, e.all(), n)
	})
}

func TestKafkaPendingAndWatched(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		ready := make([]bool, 3)
		for i, keys := range [][]int{{1}, {1, 2}, {1, 2, 3}} {
			_, err := p.Park(time.Hour, func() bool { return ready[i] }, nil, keys...)
			require.NoError(t, err)
		}
		st := p.verify(t)
		require.Equal(t, []int64{3, 6}, []int64{st.Pending, st.Watched})
		ready[1] = true
		require.Equal(t, 1, p.Notify(2))
		st = p.verify(t)
		require.Equal(t, []int64{2, 4}, []int64{st.Pending, st.Watched}, "at once, without a reaper")
		ready[0], ready[2] = true, true
		require.Equal(t, 2, p.Notify(1))
		st = p.verify(t)
		require.Zero(t, st.Pending+st.Watched+st.Keys)
	})
}

func TestKafkaCancelKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var e ends
		for _, key := range []int{1, 2, 1} {
			_, err := p.Park(time.Hour, never, e.done, key)
			require.NoError(t, err)
		}
		require.Equal(t, 2, p.CancelKey(1))
		require.Equal(t, []Outcome{Canceled, Canceled}, e.all())
		require.Zero(t, p.CancelKey(1))
		require.EqualValues(t, 1, p.verify(t).Watched)
		require.Equal(t, 1, w.Len())
	})
}

// 100 operations, each of which takes 20 attempts, at random times from many goroutines.
func TestKafkaManyAttempts(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	const ops, attempts = 100, 20
	var calls atomic.Int32
	left := make([]atomic.Int32, ops)
	var parked []*Op[int]
	for i := range ops {
		left[i].Store(attempts)
		o, err := p.Park(time.Hour, func() bool { return left[i].Load() == 0 }, func(Outcome) { calls.Add(1) }, i)
		require.NoError(t, err)
		parked = append(parked, o)
	}
	within(t, func() {
		var all sync.WaitGroup
		for range attempts {
			all.Go(func() {
				for _, i := range rand.Perm(ops) {
					left[i].Add(-1)
					p.Notify(i)
					if rand.IntN(20) == 0 {
						time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
					}
				}
			})
		}
		all.Wait()
	})
	for i, o := range parked {
		require.Equal(t, Satisfied, o.Outcome(), "operation %d has lost its event", i)
	}
	require.EqualValues(t, ops, calls.Load())
	p.verify(t)
}

// Fault #4704: an attempt under a lock that is only tried, while another has just had the
// answer no, is lost. Here two goroutines at a time bring about the two halves of a
// condition.
func TestFaultLostCompletion(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	within(t, func() {
		for range 20_000 {
			var half [2]atomic.Bool
			o, err := p.Park(time.Hour, func() bool { return half[0].Load() && half[1].Load() }, nil, 1)
			require.NoError(t, err)
			var both sync.WaitGroup
			for i := range half {
				both.Go(func() { half[i].Store(true); p.Notify(1) })
			}
			both.Wait()
			require.Equal(t, Satisfied, o.Outcome())
		}
	})
}

// The same between Park and an event that comes while it is under way.
func TestFaultLostBetweenQuestionAndRegistration(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	within(t, func() {
		for i := range 20_000 {
			var ready atomic.Bool
			var event sync.WaitGroup
			event.Go(func() { ready.Store(true); p.Notify(i) })
			o, err := p.Park(time.Hour, ready.Load, nil, i)
			require.NoError(t, err)
			event.Wait()
			require.Equal(t, Satisfied, o.Outcome())
		}
	})
	p.verify(t)
}

// Fault #2195, #3956, #4103, #5999, #8657, #19798: locks held while foreign code runs,
// which takes locks of its own. Here the foreign code waits until others have called
// every method.
func TestFaultDeadlock(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	everything := func(key int) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Notify(key)
			p.CancelKey(key + 1)
			p.Stats()
			o, err := p.Park(time.Hour, never, nil, key, key+1, key+2)
			require.NoError(t, err)
			o.Check()
			o.Outcome()
			o.Cancel()
			require.ErrorIs(t, p.Wait(t.Context(), time.Millisecond, never, key), ErrExpired)
			w.Len()
		}()
		<-done
	}
	within(t, func() {
		park := func(d time.Duration, done func(Outcome)) {
			first := true
			_, err := p.Park(d, func() bool {
				if first {
					first = false
					everything(1)
				}
				return false
			}, done, 1, 2)
			require.NoError(t, err)
		}
		expired := make(chan struct{})
		park(10*time.Millisecond, func(Outcome) { everything(1); close(expired) })
		<-expired
		park(time.Hour, func(Outcome) { everything(1) })
		require.Equal(t, 1, p.CancelKey(1))
		_, err := p.Park(time.Hour, nil, func(Outcome) { everything(1) }, 1, 2)
		require.NoError(t, err)
		require.Equal(t, 1, p.Notify(2))
	})
	p.verify(t)
}

// Fault #5338 and DelayedOperationTest: a try that blocks delays no neighbour, not even
// under the same key.
func TestFaultContention(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		block, goOn := false, make(chan struct{})
		o, err := p.Park(time.Hour, func() bool {
			if block {
				<-goOn
			}
			return false
		}, nil, 1)
		require.NoError(t, err)
		block = true
		slow := make(chan int)
		go func() { slow <- p.Notify(1) }()
		synctest.Wait()
		for key := range 200 { // all stripes
			_, err := p.Park(time.Hour, nil, nil, key)
			require.NoError(t, err)
			require.Equal(t, 1, p.Notify(key))
		}
		require.True(t, o.Cancel(), "and it can be ended itself")
		close(goOn)
		require.Zero(t, <-slow)
	})
}

// Fault #16777: an exception in one keeps the rest from being completed. See
// TestPanicInTry, TestPanicInDone and TestGoexit too.
func TestFaultStarvedByException(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		bad := false
		_, err := p.Park(time.Hour, func() bool {
			if bad {
				panic("oops")
			}
			return false
		}, nil, 1)
		require.NoError(t, err)
		o, err := p.Park(time.Hour, nil, nil, 1)
		require.NoError(t, err)
		bad = true
		require.Panics(t, func() { p.Notify(1) })
		require.Equal(t, Satisfied, o.Outcome())
		bad = false
	})
}

// Fault #17177: a completion that completes another, and so on, until the stack
// overflows.
func TestFaultRecursion(t *testing.T) {
	n := unlessShort(100_000, 30_000)
	defer debug.SetMaxStack(debug.SetMaxStack(64 * n)) // less for each operation than a call takes
	w := timingwheel.New()
	defer w.Stop()

	t.Run("a million", func(t *testing.T) {
		const n = million
		p := New[int](w)
		ended := 0
		var park func(i int)
		park = func(i int) {
			p.Park(time.Hour, nil, func(Outcome) {
				ended++
				if i < n {
					park(i + 1)
					p.Notify(i + 1)
				}
			}, i)
		}
		park(1)
		within(t, func() { require.Equal(t, 1, p.Notify(1)) })
		require.Equal(t, n, ended, "when the first Notify returns")
		require.EqualValues(t, n, p.verify(t).Satisfied)
	})
	t.Run("parked before", func(t *testing.T) {
		p := New[int](w)
		ended := 0
		for i := range n {
			_, err := p.Park(time.Hour, nil, func(Outcome) { ended++; p.Notify(i + 1) }, i)
			require.NoError(t, err)
		}
		within(t, func() { require.Equal(t, 1, p.Notify(0)) })
		require.Equal(t, n, ended)
		p.verify(t)
	})
}

// The same by other ways than Notify.
func TestFaultRecursionByOtherWays(t *testing.T) {
	n := unlessShort(100_000, 30_000)
	defer debug.SetMaxStack(debug.SetMaxStack(64 * n))
	w := timingwheel.New()
	defer w.Stop()

	t.Run("cancel", func(t *testing.T) {
		p := New[int](w)
		ops := make([]*Op[int], n+1)
		ended := 0
		for i := range n {
			ops[i], _ = p.Park(time.Hour, nil, func(Outcome) {
				if ended++; i > 0 {
					ops[i-1].Cancel()
				}
			}, 1)
		}
		within(t, func() { require.True(t, ops[n-1].Cancel()) })
		require.Equal(t, n, ended)
		p.verify(t)
	})
	t.Run("within Park", func(t *testing.T) {
		p := New[int](w)
		ended := 0
		var park func(Outcome)
		park = func(Outcome) {
			if ended++; ended <= n {
				p.Park(time.Hour, always, park, 1)
			}
		}
		within(t, func() { park(Pending) })
		require.Equal(t, n+1, ended)
		p.verify(t)
	})
	t.Run("threshold", func(t *testing.T) {
		th := NewThreshold[int](w)
		ended := 0
		var park func(i int)
		park = func(i int) {
			th.Park(i, time.Hour, func(Outcome) {
				ended++
				if i < n {
					park(i + 1)
					th.Advance(i + 1)
				}
			})
		}
		park(1)
		within(t, func() { require.Equal(t, 1, th.Advance(1)) })
		require.Equal(t, n, ended)
		th.verify(t)
	})
	t.Run("panics", func(t *testing.T) {
		p := New[int](w)
		ended := 0
		for i := range 10_000 {
			_, err := p.Park(time.Hour, nil, func(Outcome) {
				ended++
				p.Notify(i + 1)
				if i%2 == 0 {
					panic(i)
				}
			}, i)
			require.NoError(t, err)
		}
		within(t, func() { require.Panics(t, func() { p.Notify(0) }) })
		require.Equal(t, 10_000, ended)
		p.verify(t)
	})
}

type ballast [1 << 10]byte

func holding(ready *bool, b *ballast) func() bool {
	return func() bool { b[0]++; return *ready }
}

// Fault #19928, #20654: what has ended is kept under its other keys, until memory runs
// out.
func TestFaultRetained(t *testing.T) {
	for name, end := range map[string]func(p *Purgatory[int], o *Op[int]){
		"notify":     func(p *Purgatory[int], _ *Op[int]) { p.Notify(2) },
		"cancel":     func(_ *Purgatory[int], o *Op[int]) { o.Cancel() },
		"cancel key": func(p *Purgatory[int], _ *Op[int]) { p.CancelKey(3) },
		"deadline": func(_ *Purgatory[int], o *Op[int]) {
			for o.Outcome() == Pending {
				time.Sleep(time.Millisecond)
			}
		},
		"close":         func(p *Purgatory[int], _ *Op[int]) { p.Close() },
		"wheel stopped": func(p *Purgatory[int], _ *Op[int]) { p.wheel.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New()
			defer w.Stop()
			p := New[int](w)
			for key := range 5 { // neighbours under all keys, who stay
				_, err := p.Park(time.Hour, never, nil, key)
				require.NoError(t, err)
			}
			d := time.Hour
			if name == "deadline" {
				d = 10 * time.Millisecond
			}
			ready := false
			try, done := new(ballast), new(ballast)
			weakTry, weakDone := weak.Make(try), weak.Make(done)
			o, err := p.Park(d, holding(&ready, try), func(Outcome) { done[0]++ }, 1, 2, 3, 4)
			require.NoError(t, err)
			ready = true
			end(p, o)
			require.Eventually(t, func() bool {
				runtime.GC()
				return weakTry.Value() == nil && weakDone.Value() == nil
			}, 30*time.Second, time.Millisecond, "its functions are kept, though its user has only the Op")
			weakOp := weak.Make(o)
			o = nil
			require.Eventually(t, func() bool {
				runtime.GC()
				return weakOp.Value() == nil
			}, 30*time.Second, time.Millisecond, "the operation is kept")
			runtime.KeepAlive(p)
		})
	}
}
