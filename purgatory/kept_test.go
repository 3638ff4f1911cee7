package purgatory

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// collected waits until at most left of the objects that ps point to are in memory.
func collected[T any](t *testing.T, ps []weak.Pointer[T], left int) {
	t.Helper()
	require.Eventually(t, func() bool {
		runtime.GC()
		n := 0
		for _, p := range ps {
			if p.Value() != nil {
				n++
			}
		}
		return n <= left
	}, 30*time.Second, time.Millisecond)
}

// A call that ends many operations is at the last of them, whose done takes long. No other
// operation is kept, except the one before.
func TestWalkKeepsNothing(t *testing.T) {
	const n = batch // a visit takes so many at a time
	t.Run("Purgatory", func(t *testing.T) {
		for name, end := range map[string]func(p *Purgatory[int]){
			"Notify": func(p *Purgatory[int]) { p.Notify(1) },
			"Close":  func(p *Purgatory[int]) { p.Close() },
		} {
			t.Run(name, func(t *testing.T) {
				w := timingwheel.New()
				defer w.Stop()
				p := New[int](w)
				var ops []weak.Pointer[Op[int]]
				called := 0
				for range n {
					o, err := p.Park(time.Hour, nil, func(Outcome) {
						if called++; called == n {
							collected(t, ops, 2)
						}
					}, 1)
					require.NoError(t, err)
					ops = append(ops, weak.Make(o))
				}
				end(p)
				require.Equal(t, n, called)
				runtime.KeepAlive(p)
			})
		}
	})
	t.Run("Threshold", func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		th := NewThreshold[int](w)
		var waiters []weak.Pointer[waiter[int]]
		called := 0
		for range n {
			_, err := th.Park(1, time.Hour, func(Outcome) {
				if called++; called == n {
					collected(t, waiters, 2)
				}
			})
			require.NoError(t, err)
		}
		waiters = weakWaiters(th.root, nil)
		require.Equal(t, n, th.Advance(1))
		runtime.KeepAlive(th)
	})
}

// The queue of calls that would nest too deep keeps none that has ended.
func TestNestKeepsNothing(t *testing.T) {
	const n = 100
	var bounce trampoline
	var captured []weak.Pointer[ballast]
	called := 0
	bounce.put(call{func(Outcome) {
		for range n {
			b := new(ballast)
			captured = append(captured, weak.Make(b))
			bounce.put(call{func(Outcome) {
				b[0]++
				if called++; called == n {
					collected(t, captured, 2)
				}
			}, Satisfied})
		}
	}, Satisfied})
	require.Equal(t, n, called)
	require.Nil(t, bounce.waiting)
	runtime.KeepAlive(&bounce)
}

// An operation that has ended, and that its user keeps, holds none that were beside it.
func TestEndedHoldsNoNeighbor(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	var ops []*Op[int]
	var others []weak.Pointer[Op[int]]
	for i := range 10 {
		o, err := p.Park(time.Hour, nil, nil, 1)
		require.NoError(t, err)
		ops = append(ops, o)
		if i != 5 {
			others = append(others, weak.Make(o))
		}
	}
	kept := ops[5]
	require.True(t, kept.Cancel())
	require.Equal(t, 9, p.CancelKey(1))
	clear(ops)
	collected(t, others, 0)
	runtime.KeepAlive(kept)
	runtime.KeepAlive(p)
}
