package purgatory

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestTop(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[string](w)
	require.Empty(t, p.Top(10))
	park := func(n int, keys ...string) (last *Op[string]) {
		for range n {
			o, err := p.Park(time.Hour, nil, nil, keys...)
			require.NoError(t, err)
			last = o
		}
		return last
	}
	park(100, "crowd")        // several batches of a visit
	park(batch, "batch")      // one that is full
	park(batch+1, "and more") // one more
	both := park(1, "two", "one")
	park(1, "two")
	for i := range 1000 {
		park(1, fmt.Sprint("single ", i))
	}
	require.Equal(t, []KeyCount{{"crowd", 100}, {"and more", batch + 1}, {"batch", batch}, {"two", 2}}, p.Top(4))
	require.Len(t, p.Top(10), 10)
	require.Len(t, p.Top(math.MaxInt), 1005)
	require.Equal(t, []KeyCount{{"crowd", 100}}, p.Top(1))
	require.Empty(t, p.Top(0))
	require.Empty(t, p.Top(-1))
	p.verify(t) // no mark is left

	both.Cancel()
	p.CancelKey("crowd")
	require.Equal(t, []KeyCount{{"and more", batch + 1}, {"batch", batch}}, p.Top(2))
	require.Len(t, p.Top(math.MaxInt), 1003)
	p.Close()
	require.Empty(t, p.Top(10))
	require.PanicsWithValue(t, "purgatory: Top: the Purgatory was not made by New", func() { new(Purgatory[int]).Top(1) })
}

// If each key has one operation, Top returns as many keys as requested, also when all of them are
// in one stripe.
func TestTopOfOneStripe(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	for key, n := 0, 0; n < 3; key++ {
		if p.stripeOf(key) != 0 {
			continue
		}
		_, err := p.Park(time.Hour, nil, nil, key)
		require.NoError(t, err)
		n++
		require.Len(t, p.Top(n), n)
		require.Len(t, p.Top(n-1), n-1)
		require.Len(t, p.Top(n+1), n)
	}
}

// A key whose operations have ended before it is counted is left out.
func TestTopLeavesOutWhatHasLeft(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[string](w)
	for range 2 {
		_, err := p.Park(time.Hour, nil, nil, "gone")
		require.NoError(t, err)
	}
	s := &p.stripes[p.stripeOf("gone")]
	keys := s.keys(1)
	require.Equal(t, []crowd[string]{{"gone", 0}}, keys)
	p.CancelKey("gone")
	require.Empty(t, s.crowds(keys))
}

// Keys of any type become text, and those that are equal in number are in its order.
func TestTopOfOtherKeys(t *testing.T) {
	type partition struct {
		Topic string
		N     int
	}
	w := timingwheel.New()
	defer w.Stop()
	p := New[any](w)
	for _, key := range []any{partition{"b", 2}, 7, time.Second} {
		p.Park(time.Hour, nil, nil, key)
	}
	require.Equal(t, []KeyCount{{"1s", 1}, {"7", 1}, {"{b 2}", 1}}, p.Top(10))
}

// While operations come and go, Top counts no more than have been there, and leaves no
// mark behind.
func TestTopMeanwhile(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	const steady, most = 3 * batch, 3*batch + 4*50
	never := func() bool { return false }
	for range steady {
		p.Park(time.Hour, never, nil, 0)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				var ops []*Op[int]
				for range 50 {
					o, _ := p.Park(time.Hour, never, nil, 0, 1)
					ops = append(ops, o)
				}
				p.Notify(0)
				for _, o := range ops {
					o.Cancel()
				}
			}
		})
	}
	for range 200 {
		for _, k := range p.Top(2) {
			if k.Key == "0" && k.Pending < steady || k.Pending > most || k.Pending == 0 {
				t.Errorf("%+v", k)
			}
		}
	}
	all.Wait()
	require.Equal(t, []KeyCount{{"0", steady}}, p.Top(2))
	require.EqualValues(t, steady, p.verify(t).Pending)
}
