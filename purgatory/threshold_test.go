package purgatory

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/internal/parking"
	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		th := NewThreshold[int](w)
		var order []int
		park := func(v int) func() bool {
			cancel, err := th.Park(v, time.Hour, func(o Outcome) {
				if o == Satisfied {
					order = append(order, v)
				}
			})
			require.NoError(t, err)
			return cancel
		}
		for _, v := range []int{5, 3, 9, 3, 7} {
			park(v)
		}
		require.Equal(t, 5, th.verify(t))
		require.Equal(t, Stats{Parked: 5, Pending: 5, Watched: 5, Keys: 1}, th.Stats())
		require.Zero(t, th.Advance(2))
		require.Equal(t, 2, th.Advance(3))
		require.Zero(t, th.Advance(1), "it never goes back")
		require.Zero(t, th.Advance(3))
		require.Equal(t, 2, th.Advance(8))
		require.Equal(t, []int{3, 3, 5, 7}, order)
		require.Zero(t, th.Advance(3), "nor does what was reached")
		park(8)
		park(-4)
		require.Equal(t, []int{3, 3, 5, 7, 8, -4}, order, "reached already")
		cancel := park(20)
		require.True(t, cancel())
		require.False(t, cancel())
		require.Equal(t, 1, th.verify(t))
		require.Equal(t, 1, w.Len())
		require.Equal(t, Stats{Parked: 8, Satisfied: 6, Canceled: 1, Pending: 1, Immediate: 2, Watched: 1, Keys: 1}, th.Stats())
		_, err := th.Park(100, 0, nil)
		require.NoError(t, err)
		th.Close()
		th.Close()
		require.Equal(t, Stats{Parked: 9, Satisfied: 6, Expired: 1, Canceled: 1, Closed: 1, Immediate: 2}, th.Stats())
		require.Zero(t, th.Advance(100))
		_, err = th.Park(1, time.Hour, nil)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, th.Await(t.Context(), 1, time.Hour), ErrClosed)
		require.Zero(t, w.Len())
	})
}

func TestThresholdAwait(t *testing.T) {
	cause := errors.New("the client has gone")
	for name, c := range map[string]struct {
		end  func(w *timingwheel.TimingWheel, th *Threshold[int64], cancel context.CancelCauseFunc)
		want error
	}{
		"satisfied": {func(_ *timingwheel.TimingWheel, th *Threshold[int64], _ context.CancelCauseFunc) { th.Advance(10) }, nil},
		"closed":    {func(_ *timingwheel.TimingWheel, th *Threshold[int64], _ context.CancelCauseFunc) { th.Close() }, ErrClosed},
		"stopped":   {func(w *timingwheel.TimingWheel, _ *Threshold[int64], _ context.CancelCauseFunc) { w.Stop() }, ErrClosed},
		"ctx":       {func(_ *timingwheel.TimingWheel, _ *Threshold[int64], cancel context.CancelCauseFunc) { cancel(cause) }, cause},
		"expired":   {func(*timingwheel.TimingWheel, *Threshold[int64], context.CancelCauseFunc) {}, ErrExpired},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := timingwheel.New()
				defer w.Stop()
				th := NewThreshold[int64](w)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				start := time.Now()
				result := make(chan error)
				go func() { result <- th.Await(ctx, 10, time.Minute) }()
				time.Sleep(time.Second)
				require.Zero(t, th.Advance(9))
				c.end(w, th, cancel)
				err := <-result
				if c.want == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, c.want)
				}
				if c.want == ErrExpired {
					require.Equal(t, time.Minute, time.Since(start))
				}
				synctest.Wait() // done has told of the end, and may not have returned
				require.Zero(t, th.verify(t))
				require.Zero(t, w.Len())
			})
		})
	}
	w := timingwheel.New()
	th := NewThreshold[int](w)
	require.NoError(t, th.Await(t.Context(), 0, 0), "it begins at zero")
	require.ErrorIs(t, th.Await(t.Context(), 1, 0), ErrExpired)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, th.Await(ctx, 0, time.Hour), context.Canceled)
	w.Stop()
	require.ErrorIs(t, th.Await(t.Context(), 1, time.Hour), timingwheel.ErrStopped)
	_, err := th.Park(1, time.Hour, nil)
	require.ErrorIs(t, err, timingwheel.ErrStopped)
	require.Zero(t, th.verify(t))
}

func TestThresholdDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		th := NewThreshold[float64](w)
		start := time.Now()
		var e ends
		for _, d := range []time.Duration{0, -1, time.Second, 2 * time.Second} {
			_, err := th.Park(1.5, d, func(o Outcome) {
				require.Equal(t, max(0, d), time.Since(start))
				e.done(o)
			})
			require.NoError(t, err)
		}
		_, err := th.Park(1.5, 2*time.Second, nil)
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Equal(t, []Outcome{Expired, Expired, Expired, Expired}, e.all())
		require.Zero(t, th.verify(t))
	})
}

func TestThresholdProgrammerErrors(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	th := NewThreshold[float64](w)
	nan := math.NaN()
	var none context.Context
	for want, f := range map[string]func(){
		"purgatory: NewThreshold(nil)":                                 func() { NewThreshold[int](nil) },
		"purgatory: Await: nil context":                                func() { th.Await(none, 1, time.Hour) },
		"purgatory: Await: the value does not equal itself":            func() { th.Await(t.Context(), nan, time.Hour) },
		"purgatory: Park: the value does not equal itself":             func() { th.Park(nan, time.Hour, nil) },
		"purgatory: Advance: the value does not equal itself":          func() { th.Advance(nan) },
		"purgatory: Await: the Threshold was not made by NewThreshold": func() { new(Threshold[int]).Await(t.Context(), 1, 1) },
		"purgatory: Park: the Threshold was not made by NewThreshold":  func() { new(Threshold[int]).Park(1, 1, nil) },
		"purgatory: Advance: the Threshold was not made by NewThreshold": func() {
			new(Threshold[int]).Advance(1)
		},
		"purgatory: Stats: the Threshold was not made by NewThreshold": func() { new(Threshold[int]).Stats() },
		"purgatory: Close: the Threshold was not made by NewThreshold": func() { new(Threshold[int]).Close() },
	} {
		require.PanicsWithValue(t, want, f)
	}
}

func TestThresholdPanics(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	th := NewThreshold[int](w)
	ended := 0
	for i := range 10 {
		_, err := th.Park(i+1, time.Hour, func(Outcome) {
			ended++
			if i%2 == 0 {
				panic(i)
			}
		})
		require.NoError(t, err)
	}
	require.PanicsWithValue(t, 0, func() { th.Advance(5) })
	require.Equal(t, 5, ended)
	require.PanicsWithValue(t, 6, th.Close)
	require.Equal(t, 10, ended)
	require.Zero(t, th.verify(t))
}

// Advance counts whom it ends itself: not one that a done has canceled before its turn.
func TestThresholdCountsItsOwn(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	th := NewThreshold[int](w)
	var cancel func() bool
	var e ends
	_, err := th.Park(1, time.Hour, func(o Outcome) {
		require.True(t, cancel())
		e.done(o)
	})
	require.NoError(t, err)
	cancel, err = th.Park(2, time.Hour, e.done)
	require.NoError(t, err)
	require.Equal(t, 1, th.Advance(2))
	require.Equal(t, []Outcome{Canceled, Satisfied}, e.all())
	require.Zero(t, th.verify(t))
}

// The number rises between the first read and the entry into the tree, to the awaited value or
// beyond.
func TestThresholdRisesDuringPark(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for _, v := range []int{1, 2} {
		th := NewThreshold[int](w)
		outcome, err := th.begin(1, time.Hour)
		require.NoError(t, err)
		require.Equal(t, Pending, outcome)
		require.Zero(t, th.Advance(v))
		var e ends
		x := &waiter[int]{threshold: th, v: 1}
		x.done = e.done
		require.NoError(t, x.register(time.Hour))
		require.Equal(t, []Outcome{Satisfied}, e.all())
		require.Zero(t, th.verify(t))
		require.Equal(t, Stats{Parked: 1, Satisfied: 1}, th.Stats())
		require.Zero(t, w.Len())
	}
}

// A Threshold that is closed between the first read and the entry into the tree refuses.
func TestThresholdClosesDuringPark(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	th := NewThreshold[int](w)
	_, err := th.begin(1, time.Hour)
	require.NoError(t, err)
	th.Close()
	x := &waiter[int]{threshold: th, v: 1}
	require.Equal(t, ErrClosed, x.register(time.Hour))
	require.Zero(t, th.verify(t))
	require.Zero(t, w.Len())
}

// If a waiter ends before Park has registered it in full, Park does the rest. Otherwise, done could
// be called twice.
func TestThresholdEndsDuringPark(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for want, end := range map[Outcome]func(th *Threshold[int], x *waiter[int]){
		Satisfied: func(th *Threshold[int], _ *waiter[int]) { require.Equal(t, 1, th.Advance(1)) },
		Canceled:  func(_ *Threshold[int], x *waiter[int]) { require.True(t, x.Cancel()) },
		Closed: func(_ *Threshold[int], x *waiter[int]) {
			rest, _ := (*waiterOnWheel[int])(x).Stop(parking.Held{})
			require.Nil(t, rest)
		},
		Expired: func(_ *Threshold[int], x *waiter[int]) {
			leave, done := (*waiterOnWheel[int])(x).Expire(parking.Held{})
			require.Nil(t, leave)
			require.Nil(t, done)
		},
	} {
		th := NewThreshold[int](w)
		var e ends
		x := &waiter[int]{threshold: th, v: 1}
		x.done = e.done
		_, err := x.enter(time.Hour)
		require.NoError(t, err)
		end(th, x)
		require.Empty(t, e.all())
		require.Equal(t, want, x.settle())
		finish(x, want)
		require.Equal(t, []Outcome{want}, e.all())
		require.Zero(t, th.verify(t))
	}
}

// The tree beside a sorted list.
func TestThresholdModel(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	type entry struct {
		v, id  int
		cancel func() bool
	}
	for seed := range uint64(unlessShort(200, 50)) {
		random := rand.New(rand.NewPCG(seed, 1))
		th := NewThreshold[int](w)
		var list []entry // sorted by v, then in the order of parking
		var got []int
		value := 0
		for id := range 200 {
			switch random.IntN(4) {
			case 0:
				v := value + random.IntN(7) - 1
				ended := th.Advance(v)
				value = max(value, v)
				n := 0
				for n < len(list) && list[n].v <= value {
					n++
				}
				require.Equal(t, n, ended)
				for _, e := range list[:n] {
					require.Equal(t, e.id, got[0])
					got = got[1:]
				}
				list = list[n:]
			case 1:
				if len(list) > 0 {
					i := random.IntN(len(list))
					require.True(t, list[i].cancel())
					list = slices.Delete(list, i, i+1)
				}
			default:
				e := entry{v: value + 1 + random.IntN(20), id: id}
				var err error
				e.cancel, err = th.Park(e.v, time.Hour, func(o Outcome) {
					if o == Satisfied {
						got = append(got, id)
					}
				})
				require.NoError(t, err)
				i := slices.IndexFunc(list, func(other entry) bool { return other.v > e.v })
				if i < 0 {
					i = len(list)
				}
				list = slices.Insert(list, i, e)
			}
			require.Empty(t, got)
			require.Equal(t, len(list), th.verify(t))
		}
		th.Close()
	}
	require.Zero(t, w.Len())
}

// The tree of waiters stays shallow in whatever order they come, so that a rise past one of many
// takes few steps.
func TestThresholdIsShallow(t *testing.T) {
	const waiters, most = 20_000, 80 // a random tree is about 40 deep, and a list 20,000
	w := timingwheel.New()
	defer w.Stop()
	for name, value := range map[string]func(i int) int{
		"rising":  func(i int) int { return 1 + i },
		"falling": func(i int) int { return waiters - i },
		"equal":   func(int) int { return 1 },
	} {
		th := NewThreshold[int](w)
		for i := range waiters {
			_, err := th.Park(value(i), time.Hour, nil)
			require.NoError(t, err)
		}
		require.LessOrEqual(t, depth(th.root), most, name)
		th.Close()
	}
}

func depth(w *waiter[int]) int {
	if w == nil {
		return 0
	}
	return 1 + max(depth(w.left), depth(w.right))
}

func TestThresholdStress(t *testing.T) {
	for _, stop := range []bool{false, true} {
		goroutines := runtime.NumGoroutine()
		w := timingwheel.New(timingwheel.WithTick(100 * time.Microsecond))
		th := NewThreshold[int64](w)
		var number, calls, accepted, ended atomic.Int64
		var end atomic.Bool
		within(t, func() {
			var all sync.WaitGroup
			for range 6 {
				all.Go(func() {
					for !end.Load() {
						v := number.Load() + rand.Int64N(10)
						d := time.Duration(rand.IntN(3000)-100) * time.Microsecond
						switch rand.IntN(4) {
						case 0:
							ended.Add(int64(th.Advance(number.Add(1))))
						case 1:
							th.Await(t.Context(), v, d)
						default:
							var once atomic.Int32
							cancel, err := th.Park(v, d, func(Outcome) {
								calls.Add(1)
								if once.Add(1) > 1 {
									t.Error("done twice")
								}
							})
							if err != nil {
								continue
							}
							accepted.Add(1)
							if rand.IntN(2) == 0 {
								cancel()
							}
						}
					}
				})
			}
			time.Sleep(300 * time.Millisecond)
			if stop {
				w.Stop()
			} else {
				th.Close()
			}
			end.Store(true)
			all.Wait()
			th.Close()
			w.Stop()
			// A done has told of the end, and may not have returned. The number of goroutines does
			// not tell: one of an earlier test may have been counted in goroutines and be gone by now.
			for calls.Load() < accepted.Load() || th.running.Load() > 0 || runtime.NumGoroutine() > goroutines+1 { // and this one
				time.Sleep(time.Millisecond)
			}
		})
		require.Equal(t, accepted.Load(), calls.Load())
		require.Positive(t, ended.Load())
		require.Zero(t, th.verify(t))
		require.Zero(t, w.Len())
	}
}

// Nobody is missed who comes while the number rises.
func TestThresholdLosesNobody(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	within(t, func() {
		for range 5000 {
			th := NewThreshold[int](w)
			var both sync.WaitGroup
			both.Go(func() { th.Advance(1) })
			if err := th.Await(t.Context(), 1, time.Hour); err != nil {
				t.Error(err)
			}
			both.Wait()
		}
	})
}

// A cancel that its user keeps holds none of the others that were ended with it, nor what
// they were given.
func TestThresholdKeepsNothing(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	th := NewThreshold[int](w)
	var kept []func() bool
	for i := range 100 {
		cancel, err := th.Park(1+i%7, time.Hour, func(Outcome) {})
		require.NoError(t, err)
		if i%10 < 5 {
			kept = append(kept, cancel)
		}
	}
	waiters := weakWaiters(th.root, nil)
	require.Len(t, waiters, 100)
	for i := 0; i < len(kept); i += 2 { // with neighbors in the tree, above and below
		require.True(t, kept[i]())
	}
	require.Equal(t, 75, th.Advance(7))
	require.Eventually(t, func() bool {
		runtime.GC()
		left := 0
		for _, p := range waiters {
			if w := p.Value(); w != nil {
				left++
				require.Nil(t, w.done)
			}
		}
		return left == len(kept)
	}, 30*time.Second, time.Millisecond)
	runtime.KeepAlive(kept)
	runtime.KeepAlive(th)
}

func weakWaiters(w *waiter[int], ps []weak.Pointer[waiter[int]]) []weak.Pointer[waiter[int]] {
	if w == nil {
		return ps
	}
	return weakWaiters(w.right, append(weakWaiters(w.left, ps), weak.Make(w)))
}
