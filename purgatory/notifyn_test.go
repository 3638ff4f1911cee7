package purgatory

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// parkInOrder parks n operations under key 1. It returns where the numbers of those that
// are satisfied go, in that order.
func parkInOrder(t *testing.T, p *Purgatory[int], n int, try func(i int) bool) *[]int {
	order := new([]int)
	for i := range n {
		_, err := p.Park(time.Hour, func() bool { return try(i) }, func(o Outcome) {
			if o == Satisfied {
				*order = append(*order, i)
			}
		}, 1)
		require.NoError(t, err)
	}
	return order
}

func TestNotifyN(t *testing.T) {
	for _, n := range []int{1, 2, 5, batch, batch + 1, 5 * batch} {
		bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
			ready, asked := false, 0
			order := parkInOrder(t, p, n, func(int) bool { asked++; return ready })
			asked = 0
			for _, most := range []int{0, -1, math.MinInt} {
				require.Zero(t, p.NotifyN(1, most))
			}
			require.Zero(t, p.NotifyN(2, 3), "nothing is there")
			require.Zero(t, asked, "nobody was asked")
			require.Zero(t, p.NotifyN(1, 1))
			require.Equal(t, n, asked, "nobody was ready, and all were asked once")
			asked, ready = 0, true
			require.Equal(t, 1, p.NotifyN(1, 1))
			left := n - 1
			for _, most := range []int{2, batch, batch + 1, math.MaxInt, 1} {
				require.Equal(t, min(most, left), p.NotifyN(1, most), "of %d", left)
				left -= min(most, left)
				require.EqualValues(t, left, p.verify(t).Pending)
				require.Equal(t, n-left, asked, "the others were left alone")
			}
			require.True(t, slices.IsSorted(*order), "in the order of parking")
			require.Len(t, *order, n)
		})
	}
}

// Those whose condition does not hold are passed over, and stay where they are.
func TestNotifyNPassesOver(t *testing.T) {
	for _, n := range []int{4, batch, 4 * batch} {
		for _, most := range []int{1, 2, batch} {
			bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
				ready := func(int) bool { return false }
				order := parkInOrder(t, p, n, func(i int) bool { return ready(i) })
				ready = func(i int) bool { return i >= n/2 }
				want := min(most, n/2)
				require.Equal(t, want, p.NotifyN(1, most))
				require.Equal(t, n/2, (*order)[0])
				require.Equal(t, n/2+want-1, (*order)[want-1])
				require.EqualValues(t, n-want, p.verify(t).Pending)
				ready = func(int) bool { return true }
				require.Equal(t, 1, p.NotifyN(1, 1))
				require.Zero(t, (*order)[want], "the first is first still")
			})
		}
	}
}

// One that ends under another key meanwhile does not count here.
func TestNotifyNUnderSeveralKeys(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		var order []int
		for i := range 4 {
			_, err := p.Park(time.Hour, nil, func(o Outcome) {
				if o != Satisfied {
					return
				}
				order = append(order, i)
				if i == 0 {
					require.Equal(t, 1, p.NotifyN(11, 9))
				}
			}, 1, 10+i)
			require.NoError(t, err)
		}
		require.Equal(t, 2, p.NotifyN(1, 2))
		require.Equal(t, []int{0, 1, 2}, order)
		require.Equal(t, 1, p.NotifyN(13, 1))
		require.Equal(t, Stats{Parked: 4, Satisfied: 4}, p.verify(t))
	})
}

// A done that parks again is not asked by the same call, nor does it hold it up. One that
// hands on what it does not take calls NotifyN itself.
func TestNotifyNInDone(t *testing.T) {
	for _, n := range []int{1, 3, 3 * batch} {
		bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
			calls := 0
			var again func(Outcome)
			again = func(o Outcome) {
				if o != Closed {
					calls++
					_, err := p.Park(time.Hour, nil, again, 1)
					require.NoError(t, err)
				}
			}
			for range n {
				again(Pending)
			}
			for _, most := range []int{1, 2, n, n + 1} {
				calls = 0
				require.Equal(t, min(most, n), p.NotifyN(1, most))
				require.Equal(t, min(most, n), calls)
				require.EqualValues(t, n, p.verify(t).Watched)
			}

			handedOn := 0
			for range n {
				_, err := p.Park(time.Hour, nil, func(Outcome) { handedOn++; p.NotifyN(2, 1) }, 2)
				require.NoError(t, err)
			}
			require.Equal(t, 1, p.NotifyN(2, 1))
			require.Equal(t, n, handedOn)
		})
	}
}

// One whose try or done panics does not count, and the panic goes on.
func TestNotifyNPanics(t *testing.T) {
	for _, n := range []int{6, 3 * batch} {
		for _, most := range []int{1, 3} {
			for _, inTry := range []bool{true, false} {
				bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
					ready := false
					var satisfied []int
					for i := range n {
						_, err := p.Park(time.Hour, func() bool {
							if ready && inTry && i == 0 {
								panic("in try")
							}
							return ready
						}, func(o Outcome) {
							if o == Satisfied && i == 0 {
								panic("in done")
							}
							if o == Satisfied {
								satisfied = append(satisfied, i)
							}
						}, 1)
						require.NoError(t, err)
					}
					ready = true
					require.Panics(t, func() { p.NotifyN(1, most) })
					require.Equal(t, []int{1, 2, 3}[:most], satisfied)
					p.verify(t)
					ready = false
				})
			}
		}
	}
}

// NotifyN does not wait for an operation whose try another goroutine runs. That try runs once more,
// and NotifyN calls try of the next operation in the line now.
func TestNotifyNDuringTry(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		ready := atomic.Bool{}
		holdUp, goOn := atomic.Bool{}, make(chan struct{})
		var first, second ends
		slow := func() bool {
			held := ready.Load()
			if holdUp.CompareAndSwap(true, false) {
				<-goOn
			}
			return held
		}
		_, err := p.Park(time.Hour, slow, first.done, 1)
		require.NoError(t, err)
		_, err = p.Park(time.Hour, ready.Load, second.done, 1)
		require.NoError(t, err)
		holdUp.Store(true)
		result := make(chan int)
		go func() { result <- p.NotifyN(1, 1) }()
		synctest.Wait()
		ready.Store(true)
		require.Equal(t, 1, p.NotifyN(1, 1))
		require.Equal(t, []Outcome{Satisfied}, second.all())
		require.Empty(t, first.all())
		close(goOn)
		require.Equal(t, 1, <-result)
		require.Equal(t, []Outcome{Satisfied}, first.all())
	})
}

func TestNotifyNAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		for range 3 {
			_, err := p.Park(time.Hour, nil, nil, 1)
			require.NoError(t, err)
		}
		require.Equal(t, 1, p.NotifyN(1, 1))
		w.Stop()
		synctest.Wait()
		require.Zero(t, p.NotifyN(1, 1))
		require.EqualValues(t, 2, p.verify(t).Closed)
		p.Close()
		require.Zero(t, p.NotifyN(1, 1))
	})
	require.PanicsWithValue(t, "purgatory: NotifyN: the Purgatory was not made by New", func() { new(Purgatory[int]).NotifyN(1, 0) })
}

// Goroutines take items from a queue that others put there, one at a time. Some give up in
// between. Each item is taken once, and nobody waits beside an item.
func TestStressNotifyN(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[string](w)
	const producers, consumers = 3, 40
	perEach := unlessShort(20_000, 3000)
	var queued, taken atomic.Int64
	take := func() bool {
		for n := queued.Load(); n > 0; n = queued.Load() {
			if queued.CompareAndSwap(n, n-1) {
				taken.Add(1)
				return true
			}
		}
		return false
	}
	within(t, func() {
		ctx, cancel := context.WithCancel(t.Context())
		var consuming, producing sync.WaitGroup
		for i := range consumers {
			d := time.Hour
			if i%8 == 0 {
				d = time.Duration(i) * 100 * time.Microsecond
			}
			consuming.Go(func() {
				for ctx.Err() == nil {
					err := p.Wait(ctx, d, func() bool { return queued.Load() > 0 }, "jobs")
					if err == nil {
						take()
					} else if !errors.Is(err, ErrExpired) && ctx.Err() == nil {
						t.Error(err)
					}
					if d == 0 { // it does not wait, and js/wasm takes the processor from nobody
						runtime.Gosched()
					}
				}
			})
		}
		for range producers {
			producing.Go(func() {
				for i := range perEach {
					n := 1 + i%3
					queued.Add(int64(n))
					p.NotifyN("jobs", n)
					if i%64 == 0 {
						runtime.Gosched()
					}
				}
			})
		}
		producing.Wait()
		for queued.Load() > 0 { // nobody says so again
			time.Sleep(time.Millisecond)
		}
		cancel()
		consuming.Wait()
	})
	items := 0
	for i := range perEach {
		items += producers * (1 + i%3)
	}
	require.EqualValues(t, items, taken.Load())
	require.Zero(t, p.verify(t).Pending)
}
