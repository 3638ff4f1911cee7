package timingwheel_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// gates is a group of wheels behind one kind of gate. Random calls use all that can wait there, and
// the accounts say how every function ended.
type gates struct {
	wheels []*timingwheel.TimingWheel
	keyed  []*timingwheel.Keyed[int]
	end    atomic.Bool

	accepted, ran, canceled, handedBack atomic.Int64

	mu       sync.Mutex
	timeouts []timingwheel.Timeout
	groups   []*timingwheel.Group
}

// TestGatesUnderStress stops one wheel in the middle, and all at the end: nothing is lost, runs
// twice or holds room for ever, whatever waited for the executor just then.
func TestGatesUnderStress(t *testing.T) {
	atProcessors(t, func(t *testing.T) {
		for _, kind := range []string{"pool", "inline", "caller runs"} {
			var pool *testPool
			executor := timingwheel.Inline()
			switch kind {
			case "pool":
				pool = newPool(2, 1, fullWait)
				executor = pool
			case "caller runs":
				pool = newPool(1, 0, fullCallerRuns)
				executor = pool
			}
			g := &gates{}
			for i := range 3 {
				tick := []time.Duration{time.Microsecond, 50 * time.Microsecond, time.Millisecond}[i]
				w := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithWheelSize(2<<i), timingwheel.WithShards(1+i), timingwheel.WithExecutor(executor), timingwheel.WithMaxPending(math.MaxInt))
				g.wheels, g.keyed, g.groups = append(g.wheels, w), append(g.keyed, timingwheel.NewKeyed[int](w)), append(g.groups, timingwheel.NewGroup(w))
			}
			g.storm(t)
			for _, w := range g.wheels {
				require.NoError(t, w.Shutdown(t.Context()))
				requireAccounts(t, w.Stats())
				require.Zero(t, w.Len())
				require.Zero(t, w.Stats().Waiting)
				verify(t, w)
				waitFor(t, func() bool { return w.Stats().HeldUp == 0 })
			}
			require.Equal(t, g.accepted.Load(), g.ran.Load()+g.canceled.Load()+g.handedBack.Load())
			if pool != nil {
				pool.Close()
				requireIdle(t, pool)
			}
		}
	})
}

// storm calls the wheels for a while, and stops them.
func (g *gates) storm(t *testing.T) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !g.end.Load() {
				g.act()
			}
		})
	}
	for _, w := range g.wheels {
		time.Sleep(30 * time.Millisecond)
		if w == g.wheels[2] {
			g.end.Store(true)
			wg.Wait()
		}
		g.handedBack.Add(int64(len(w.Stop())))
	}
	for _, w := range g.wheels {
		g.handedBack.Add(int64(len(w.Stop())))
	}
}

func (g *gates) delay() time.Duration {
	switch rand.IntN(10) {
	case 0:
		return -1
	case 1:
		return time.Hour
	}
	return time.Duration(rand.IntN(2_000_000))
}

func (g *gates) function() func() {
	what := rand.IntN(40)
	return func() {
		defer g.ran.Add(1)
		switch what {
		case 0:
			time.Sleep(2 * time.Millisecond)
		case 1:
			runtime.Goexit()
		case 2, 3, 4, 5:
			if !g.end.Load() {
				g.act()
			}
		}
	}
}

// act makes one call.
func (g *gates) act() {
	i := rand.IntN(len(g.wheels))
	w, keyed := g.wheels[i], g.keyed[i]
	switch n := rand.IntN(100); {
	case n < 40:
		g.add(w.Schedule(g.delay(), g.function()))
	case n < 55:
		g.add(g.group(i).Schedule(g.delay(), g.function()))
	case n < 65:
		g.accepted.Add(1)
		replaced, err := keyed.Schedule(rand.IntN(20), g.delay(), g.function())
		if replaced {
			g.canceled.Add(1)
		}
		if err != nil {
			g.accepted.Add(-1)
		}
	case n < 70:
		if keyed.Cancel(rand.IntN(20)) {
			g.canceled.Add(1)
		}
	case n < 75:
		keyed.Reset(rand.IntN(20), g.delay())
	case n < 85:
		if g.some().Cancel() {
			g.canceled.Add(1)
		}
	case n < 98:
		g.some().Reset(g.delay())
	case n < 99:
		g.canceled.Add(int64(g.replaceGroup(i).Stop()))
	default:
		g.burst(w)
	}
	if w.Len() > 5000 {
		time.Sleep(time.Millisecond)
	}
}

// burst leaves few entries of many, so that the arena moves them.
func (g *gates) burst(w *timingwheel.TimingWheel) {
	for i := range 4000 {
		timeout, err := w.Schedule(time.Hour, never)
		if err != nil {
			return
		}
		if i%100 == 0 {
			g.add(w.Schedule(g.delay(), g.function()))
		}
		defer func() {
			if !timeout.Cancel() {
				g.accepted.Add(1) // Stop was faster
			}
		}()
	}
}

func (g *gates) add(timeout timingwheel.Timeout, err error) {
	if err != nil {
		return
	}
	g.accepted.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.timeouts) < 1000 {
		g.timeouts = append(g.timeouts, timeout)
	} else {
		g.timeouts[rand.IntN(len(g.timeouts))] = timeout
	}
}

func (g *gates) some() timingwheel.Timeout {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.timeouts) == 0 {
		return timingwheel.Timeout{}
	}
	return g.timeouts[rand.IntN(len(g.timeouts))]
}

func (g *gates) group(i int) *timingwheel.Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.groups[i]
}

func (g *gates) replaceGroup(i int) (old *timingwheel.Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old, g.groups[i] = g.groups[i], timingwheel.NewGroup(g.wheels[i])
	return old
}
