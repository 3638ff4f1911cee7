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

func never() bool { return false }

func always() bool { return true }

// bubble runs f in a bubble of package synctest, with a purgatory that must be sound and
// empty in the end, and leave nothing on its wheel.
func bubble(t *testing.T, f func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int])) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		p := New[int](w)
		f(t, w, p)
		synctest.Wait()
		p.verify(t)
		p.Close()
		synctest.Wait()
		st := p.verify(t)
		require.Zero(t, st.Pending)
		require.Zero(t, w.Len())
	})
}

// ends is a done that records its outcomes.
type ends struct {
	mu   sync.Mutex
	list []Outcome
}

func (e *ends) done(o Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, o)
}

func (e *ends) all() []Outcome {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Outcome(nil), e.list...)
}

func TestParkAsksFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		for _, d := range []time.Duration{time.Hour, 0, -1} {
			var e ends
			o, err := p.Park(d, always, e.done, 1, 2)
			require.NoError(t, err)
			require.Equal(t, Satisfied, o.Outcome())
			require.Equal(t, []Outcome{Satisfied}, e.all(), "done was called when Park returned")
			require.Zero(t, w.Len(), "no timer")
			require.False(t, o.Check())
			require.False(t, o.Cancel())
		}
		st := p.verify(t)
		require.Equal(t, Stats{Parked: 3, Satisfied: 3, Immediate: 3, Checks: 3}, st)
		require.NoError(t, p.Wait(t.Context(), 0, always, 1))
	})
}

// The second question sees a condition that becomes true between the first question and the
// registration.
func TestParkAsksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		asked := 0
		var e ends
		o, err := p.Park(time.Hour, func() bool {
			asked++
			if asked == 1 {
				return false // and the event comes now, to nobody
			}
			require.EqualValues(t, 1, p.Stats().Keys, "registered before the second question")
			return true
		}, e.done, 1)
		require.NoError(t, err)
		require.Equal(t, Satisfied, o.Outcome())
		require.Equal(t, []Outcome{Satisfied}, e.all())
		require.Zero(t, w.Len())
		require.Equal(t, Stats{Parked: 1, Satisfied: 1, Checks: 2}, p.verify(t))
	})
}

func TestNotPositive(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			var e ends
			o, err := p.Park(d, never, e.done, 1)
			require.NoError(t, err)
			require.Equal(t, Expired, o.Outcome())
			require.Equal(t, []Outcome{Expired}, e.all())
			require.ErrorIs(t, p.Wait(t.Context(), d, nil, 1), ErrExpired)
		}
		require.EqualValues(t, 6, p.Stats().Expired)
	})
}

func TestNotify(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var ready bool
		var order []int
		for i := range 5 {
			_, err := p.Park(time.Hour, func() bool { return ready && i != 2 }, func(o Outcome) {
				if o == Satisfied {
					order = append(order, i)
				}
			}, 7)
			require.NoError(t, err)
		}
		require.Zero(t, p.Notify(7))
		require.Zero(t, p.Notify(8), "an unknown key")
		ready = true
		require.Equal(t, 4, p.Notify(7))
		require.Equal(t, []int{0, 1, 3, 4}, order, "in parking order")
		require.Equal(t, 1, w.Len())
		require.EqualValues(t, 1, p.verify(t).Pending)
	})
}

// Without a condition the first Notify satisfies, also one that comes in the middle of
// Park.
func TestNilTry(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		o, err := p.Park(time.Hour, nil, nil, 1, 2)
		require.NoError(t, err)
		require.Equal(t, Pending, o.Outcome())
		require.Equal(t, 1, p.Notify(2))
		require.Zero(t, p.Notify(1))
		require.Equal(t, Satisfied, o.Outcome())

		o, err = p.Park(time.Hour, nil, nil, 1)
		require.NoError(t, err)
		require.True(t, o.Check())
		require.False(t, o.Check())
		require.Zero(t, p.Stats().Checks, "nobody was asked")

		o = p.newOp(p.stripeOf(1), nil, []int{1})
		require.True(t, o.link())
		require.Zero(t, p.Notify(1), "it is marked")
		require.True(t, o.ask(false))
		require.Equal(t, Satisfied, o.settle())
		o.leave(Satisfied)
	})
}

func TestDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		start := time.Now()
		var e ends
		_, err := p.Park(50*time.Millisecond, never, func(o Outcome) {
			require.Equal(t, 50*time.Millisecond, time.Since(start))
			require.Zero(t, p.Stats().Watched, "out of all its keys")
			e.done(o)
		}, 1, 2)
		require.NoError(t, err)
		time.Sleep(50*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		require.Empty(t, e.all())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, []Outcome{Expired}, e.all())
		require.Zero(t, p.Notify(1))

		o, err := p.Park(time.Minute, never, nil, 1)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, Expired, o.Outcome())
		require.Zero(t, p.Stats().Keys, "without a done, too")
		o, err = p.Park(math.MaxInt64, never, nil, 1)
		require.NoError(t, err)
		require.True(t, o.Cancel())
	})
}

func TestCancel(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var e ends
		o, err := p.Park(time.Hour, never, e.done, 1, 2, 3)
		require.NoError(t, err)
		require.True(t, o.Cancel())
		require.Equal(t, []Outcome{Canceled}, e.all())
		require.Equal(t, Canceled, o.Outcome())
		require.False(t, o.Cancel())
		require.False(t, o.Check())
		require.Zero(t, w.Len(), "off the wheel")
		require.Zero(t, p.Stats().Keys)
		time.Sleep(2 * time.Hour)
		require.Equal(t, []Outcome{Canceled}, e.all())
	})
}

func TestWait(t *testing.T) {
	cause := errors.New("the client has gone")
	for name, c := range map[string]struct {
		end  func(w *timingwheel.TimingWheel, p *Purgatory[int], cancel context.CancelCauseFunc)
		want error
	}{
		"satisfied":  {func(_ *timingwheel.TimingWheel, p *Purgatory[int], _ context.CancelCauseFunc) { p.Notify(1) }, nil},
		"canceled":   {func(_ *timingwheel.TimingWheel, p *Purgatory[int], _ context.CancelCauseFunc) { p.CancelKey(1) }, ErrCanceled},
		"closed":     {func(_ *timingwheel.TimingWheel, p *Purgatory[int], _ context.CancelCauseFunc) { p.Close() }, ErrClosed},
		"stopped":    {func(w *timingwheel.TimingWheel, _ *Purgatory[int], _ context.CancelCauseFunc) { w.Stop() }, ErrClosed},
		"ctx":        {func(_ *timingwheel.TimingWheel, _ *Purgatory[int], cancel context.CancelCauseFunc) { cancel(cause) }, cause},
		"expired":    {func(*timingwheel.TimingWheel, *Purgatory[int], context.CancelCauseFunc) {}, ErrExpired},
		"is expired": {func(*timingwheel.TimingWheel, *Purgatory[int], context.CancelCauseFunc) {}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				start := time.Now()
				result := make(chan error)
				go func() { result <- p.Wait(ctx, time.Minute, nil, 1, 2) }()
				time.Sleep(time.Second)
				synctest.Wait()
				require.EqualValues(t, 2, p.Stats().Watched)
				c.end(w, p, cancel)
				err := <-result
				require.ErrorIs(t, err, c.want)
				if c.want == nil {
					require.NoError(t, err)
				}
				want := time.Second
				if errors.Is(err, ErrExpired) {
					want = time.Minute
				}
				require.Equal(t, want, time.Since(start))
				require.Zero(t, p.Stats().Watched)
			})
		})
	}
	require.NotErrorIs(t, ErrCanceled, context.Canceled)
}

// When Wait has expired, the operation is out of its keys.
func TestWaitIsOverWhenItReturns(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var then Stats
		o, err := p.Park(time.Second, nil, func(Outcome) { then = p.Stats() }, 1, 2)
		require.NoError(t, err)
		o.state.Or(ours) // as Wait's own
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, Stats{Parked: 1, Expired: 1}, then)
	})
}

// A goroutine that asks has try for itself, also when the operation ends meanwhile, and then lets
// go of it.
func TestTryBelongsToWhoAsks(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var o *Op[int]
		o, err := p.Park(time.Hour, func() bool {
			if o != nil {
				require.True(t, o.Cancel())
				require.NotNil(t, o.try)
			}
			return false
		}, nil, 1)
		require.NoError(t, err)
		require.Zero(t, p.Notify(1))
		require.Equal(t, Canceled, o.Outcome())
		require.Nil(t, o.try)
	})
}

// ender is an operation that somebody else has ended.
type ender struct{}

func (ender) Cancel() bool { return false }

// When ctx ends just after somebody else has ended the operation, Wait returns when that
// one is done with it, and says how it has ended.
func TestWaitForWhoWasFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var c core
		c.end(Expired, parked)
		ended, result := make(chan struct{}), make(chan error, 1)
		go func() { result <- wait(ctx, ender{}, &c, ended) }()
		synctest.Wait()
		require.Empty(t, result)
		close(ended)
		require.Equal(t, ErrExpired, <-result)
	})
}

func TestWaitWithEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.Wait(ctx, time.Hour, func() bool { panic("asked") }, 1), context.Canceled)
		require.Zero(t, p.Stats().Parked)
	})
}

func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var e ends
		for i := range 200 {
			_, err := p.Park(time.Hour, never, e.done, i, 1000, i+1)
			require.NoError(t, err)
		}
		p.Close()
		require.Len(t, e.all(), 200)
		require.NotContains(t, e.all(), Canceled)
		require.Zero(t, w.Len())
		p.Close()
		require.Zero(t, p.Notify(1000))
		require.Zero(t, p.CancelKey(1000))
		for _, d := range []time.Duration{0, time.Hour} {
			_, err := p.Park(d, always, e.done, 1)
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, p.Wait(t.Context(), d, always, 1), ErrClosed)
		}
		require.EqualValues(t, 200, p.verify(t).Closed)
	})
}

// One that is in the middle of Park when Close comes is refused, or was there before.
// Close inside a visit of several batches ends all, those too that the visit has yet to
// come to. A done that Close calls parks nothing more.
func TestCloseInsideAVisit(t *testing.T) {
	const n = 4 * batch
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var e ends
		visiting := false
		for range n {
			_, err := p.Park(time.Hour, func() bool {
				if visiting {
					visiting = false
					p.Close()
				}
				return false
			}, func(o Outcome) {
				e.done(o)
				_, err := p.Park(0, nil, nil, 2)
				require.Equal(t, ErrClosed, err)
			}, 1)
			require.NoError(t, err)
		}
		visiting = true
		require.Zero(t, p.Notify(1))
		require.Equal(t, slices.Repeat([]Outcome{Closed}, n), e.all())
		require.Zero(t, w.Len())
	})
}

func TestCloseDuringPark(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		first := true
		_, err := p.Park(time.Hour, func() bool {
			if first {
				first = false
				p.Close()
			}
			return false
		}, func(Outcome) { t.Error("done") }, 1, 2, 3)
		require.ErrorIs(t, err, ErrClosed)
		require.Zero(t, w.Len())
		require.Zero(t, p.verify(t).Parked)
	})
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		asked := 0
		var e ends
		o, err := p.Park(time.Hour, func() bool {
			if asked++; asked == 2 {
				p.Close()
				require.Empty(t, e.all(), "it is Park's to finish")
			}
			return false
		}, e.done, 1, 2, 3)
		require.NoError(t, err)
		require.Equal(t, Closed, o.Outcome())
		require.Equal(t, []Outcome{Closed}, e.all())
	})
}

// The same when Close has come to some of its keys only.
func TestCloseBetweenKeys(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		last := 1
		for p.stripeOf(last) == p.stripeOf(0) {
			last++
		}
		p.stripes[p.stripeOf(last)].close()
		_, err := p.Park(time.Hour, never, func(Outcome) { t.Error("done") }, 0, last)
		require.ErrorIs(t, err, ErrClosed)
		require.Zero(t, w.Len())
		require.Equal(t, Stats{Checks: 1}, p.verify(t))

		// But an event was faster.
		p.stripes[p.stripeOf(last)].closed = false
		o := p.newOp(p.stripeOf(0), never, []int{0, last})
		p.stripes[p.stripeOf(last)].closed = true
		var e ends
		o.done = e.done
		require.True(t, o.finishIf(Canceled))
		require.NoError(t, o.register(time.Hour))
		require.Equal(t, []Outcome{Canceled}, e.all())
		require.Zero(t, w.Len())
	})
}

func TestKeys(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	o, err := p.Park(time.Hour, never, nil, 1, 2, 1, 1, 2)
	require.NoError(t, err)
	require.EqualValues(t, 2, p.verify(t).Watched, "a key given twice counts once")
	require.True(t, o.Cancel())
	keys := make([]int, 1000)
	for i := range keys {
		keys[i] = i
	}
	o, err = p.Park(time.Hour, never, nil, keys...)
	require.NoError(t, err)
	clear(keys) // they are the caller's
	require.EqualValues(t, 1000, p.verify(t).Keys)
	require.Equal(t, 1, p.CancelKey(999))
	require.Zero(t, p.verify(t).Keys)
	require.Equal(t, Canceled, o.Outcome())
}

func TestProgrammerErrors(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[float64](w)
	asked := func() bool { t.Error("asked"); return true }
	var none context.Context
	for want, f := range map[string]func(){
		"purgatory: New(nil)":                                     func() { New[int](nil) },
		"purgatory: Park: no keys":                                func() { p.Park(time.Hour, asked, nil) },
		"purgatory: Wait: no keys":                                func() { p.Wait(t.Context(), time.Hour, asked) },
		"purgatory: Park: a key does not equal itself":            func() { p.Park(time.Hour, asked, nil, 1, math.NaN()) },
		"purgatory: Wait: nil context":                            func() { p.Wait(none, time.Hour, asked, 1) },
		"purgatory: Park: the Purgatory was not made by New":      func() { new(Purgatory[int]).Park(1, asked, nil, 1) },
		"purgatory: Wait: the Purgatory was not made by New":      func() { new(Purgatory[int]).Wait(t.Context(), 1, asked, 1) },
		"purgatory: Notify: the Purgatory was not made by New":    func() { new(Purgatory[int]).Notify(1) },
		"purgatory: CancelKey: the Purgatory was not made by New": func() { new(Purgatory[int]).CancelKey(1) },
		"purgatory: Close: the Purgatory was not made by New":     func() { new(Purgatory[int]).Close() },
		"purgatory: Stats: the Purgatory was not made by New":     func() { new(Purgatory[int]).Stats() },
	} {
		require.PanicsWithValue(t, want, f)
	}
	require.Zero(t, p.Notify(math.NaN()))
	a := New[any](w)
	require.Panics(t, func() { a.Park(time.Hour, asked, nil, []int{1}) }, "cannot be compared")
	require.Zero(t, a.Stats().Parked)
	require.Zero(t, w.Len())
}

func TestOutcomeString(t *testing.T) {
	require.Equal(t, "Pending Satisfied Expired Canceled Closed Outcome(5)",
		Pending.String()+" "+Satisfied.String()+" "+Expired.String()+" "+Canceled.String()+" "+Closed.String()+" "+Outcome(5).String())
}

func TestStoppedWheel(t *testing.T) {
	for name, end := range map[string]func(w *timingwheel.TimingWheel){
		"Stop":     func(w *timingwheel.TimingWheel) { w.Stop() },
		"Shutdown": func(w *timingwheel.TimingWheel) { w.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New()
			p := New[int](w)
			end(w)
			_, err := p.Park(time.Hour, nil, func(Outcome) { t.Error("done") }, 1)
			require.ErrorIs(t, err, timingwheel.ErrStopped)
			require.ErrorIs(t, p.Wait(t.Context(), time.Hour, never, 1), timingwheel.ErrStopped)
			require.NoError(t, p.Wait(t.Context(), time.Hour, always, 1), "what need not wait needs no wheel")
			require.Zero(t, p.verify(t).Pending)
		})
	}
}

// The wheel's Stop ends all, with no goroutine each, and none is held up by another's
// done.
func TestWheelStopEndsWhatIsParked(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var e ends
		blocked := make(chan struct{})
		var ops []*Op[int]
		for i := range 100 {
			o, err := p.Park(time.Hour, never, func(o Outcome) { e.done(o); <-blocked }, i%10, 100+i)
			require.NoError(t, err)
			ops = append(ops, o)
		}
		w.AfterFunc(time.Hour, func() {})
		require.Len(t, w.Stop(), 1, "hands back no function of an operation")
		for _, o := range ops {
			require.Equal(t, Closed, o.Outcome(), "when Stop has returned")
		}
		synctest.Wait()
		require.Len(t, e.all(), 100)
		require.Zero(t, p.Stats().Keys)
		close(blocked)
		_, err := p.Park(time.Hour, never, nil, 1)
		require.ErrorIs(t, err, timingwheel.ErrStopped)
	})
}

// Shutdown waits for parked operations, which end by their event or at their deadline.
func TestWheelShutdownWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		start := time.Now()
		var e ends
		_, err := p.Park(time.Minute, nil, e.done, 1)
		require.NoError(t, err)
		_, err = p.Park(time.Hour, nil, e.done, 2)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() {
			_, err := p.Park(time.Hour, nil, e.done, 1)
			require.ErrorIs(t, err, timingwheel.ErrStopped, "nothing new")
		})
		time.AfterFunc(2*time.Minute, func() { require.Equal(t, 1, p.Notify(2)) })
		require.NoError(t, w.Shutdown(t.Context()))
		require.Equal(t, 2*time.Minute, time.Since(start))
		synctest.Wait() // for Notify, which calls done
		require.Equal(t, []Outcome{Expired, Satisfied}, e.all())
	})
}

// And if its context ends first, they stay, until Stop.
func TestWheelShutdownGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var e ends
		_, err := p.Park(time.Hour, nil, e.done, 1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, w.Shutdown(ctx), context.DeadlineExceeded)
		require.Empty(t, e.all())
		require.Empty(t, w.Stop())
		synctest.Wait()
		require.Equal(t, []Outcome{Closed}, e.all())
	})
}

func TestTooManyPending(t *testing.T) {
	w := timingwheel.New(timingwheel.WithMaxPending(2))
	defer w.Stop()
	p := New[int](w)
	var e ends
	o, err := p.Park(time.Hour, never, e.done, 1)
	require.NoError(t, err)
	_, err = w.Schedule(time.Hour, func() {})
	require.NoError(t, err)
	_, err = p.Park(time.Hour, never, e.done, 1)
	require.ErrorIs(t, err, timingwheel.ErrTooManyPending)
	require.ErrorIs(t, p.Wait(t.Context(), time.Hour, never, 1), timingwheel.ErrTooManyPending)
	require.EqualValues(t, 1, p.verify(t).Parked)
	require.True(t, o.Cancel())
	o, err = p.Park(time.Hour, never, e.done, 1)
	require.NoError(t, err, "the place is free again")
	require.True(t, o.Cancel())
	require.Equal(t, []Outcome{Canceled, Canceled}, e.all())
}

// A deadline is kept while a function of a user holds up the driver itself: Wait returns,
// the outcome is set, and the keys are let go of. Only done waits for the executor.
func TestDeadlineWhileDriverIsHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1))
		p := New[int](w)
		start := time.Now()
		waits := make(chan error, 1)
		release := make(chan struct{})
		w.AfterFunc(time.Second, func() { <-release })
		go func() { waits <- p.Wait(t.Context(), time.Second, never, 1, 2) }()
		var e ends
		o, err := p.Park(time.Second, never, e.done, 1, 3)
		require.NoError(t, err)
		require.ErrorIs(t, <-waits, ErrExpired)
		require.Equal(t, time.Second, time.Since(start))
		synctest.Wait()
		require.Equal(t, Expired, o.Outcome())
		require.Zero(t, p.Stats().Keys)
		require.Empty(t, e.all())
		close(release)
		synctest.Wait()
		require.Equal(t, []Outcome{Expired}, e.all())
		p.verify(t)
		w.Stop()
	})
}

// An operation whose deadline comes in the middle of Park is Park's to finish.
func TestDeadlineDuringPark(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		asked := 0
		var e ends
		o, err := p.Park(time.Second, func() bool {
			if asked++; asked == 2 {
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Empty(t, e.all())
				return true // too late
			}
			return false
		}, e.done, 1, 2)
		require.NoError(t, err)
		require.Equal(t, Expired, o.Outcome())
		require.Equal(t, []Outcome{Expired}, e.all())
	})
}

// It is likewise with the wheel's Stop.
func TestWheelStopDuringPark(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		asked := 0
		var e ends
		o, err := p.Park(time.Hour, func() bool {
			if asked++; asked == 2 {
				require.Empty(t, w.Stop())
				synctest.Wait()
				require.Empty(t, e.all())
			}
			return false
		}, e.done, 1, 2)
		require.NoError(t, err)
		require.Equal(t, Closed, o.Outcome())
		require.Equal(t, []Outcome{Closed}, e.all())
	})
}

// An event during a try leaves a mark instead of waiting, and the question is repeated.
func TestNotifyDuringTry(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		var ready atomic.Bool
		var asked atomic.Int32
		goOn := make(chan struct{})
		var e ends
		_, err := p.Park(time.Hour, func() bool {
			held := ready.Load()
			if asked.Add(1) == 3 {
				<-goOn // the answer is no, and is stale when it comes
			}
			return held
		}, e.done, 1)
		require.NoError(t, err)
		result := make(chan int)
		go func() { result <- p.Notify(1) }()
		synctest.Wait()
		ready.Store(true)
		require.Zero(t, p.Notify(1))
		require.Zero(t, p.Notify(1))
		close(goOn)
		require.Equal(t, 1, <-result, "the one who asked has asked again")
		require.EqualValues(t, 4, asked.Load())
		require.Equal(t, []Outcome{Satisfied}, e.all())
	})
}

// The same when Park itself is asking.
func TestNotifyDuringPark(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		asked, ready := 0, false
		o, err := p.Park(time.Hour, func() bool {
			asked++
			held := ready
			if asked == 2 {
				ready = true
				require.Zero(t, p.Notify(1))
			}
			return held
		}, nil, 1)
		require.NoError(t, err)
		require.Equal(t, Satisfied, o.Outcome())
		require.Equal(t, 3, asked)
	})
}

// Those that are parked by a done are not visited by the Notify that calls it, however
// many there are: with a nil try it would never end.
func TestParkInDone(t *testing.T) {
	for _, n := range []int{1, batch - 1, batch, batch + 1, 10 * batch} {
		bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
			calls := 0
			var park func(Outcome)
			park = func(o Outcome) {
				if o != Closed {
					calls++
					_, err := p.Park(time.Hour, nil, park, 1)
					require.NoError(t, err)
				}
			}
			for range n {
				park(Pending)
			}
			for round := range 3 {
				calls = 0
				require.Equal(t, n, p.Notify(1), "round %d", round)
				require.Equal(t, n, calls)
				require.EqualValues(t, n, p.verify(t).Watched)
			}
		})
	}
}

// A done may end those that the same Notify would come to next.
func TestCancelInDone(t *testing.T) {
	for _, n := range []int{2, batch, batch + 1, 3*batch + 5} {
		bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
			satisfied, canceled := 0, 0
			for i := range n {
				_, err := p.Park(time.Hour, nil, func(o Outcome) {
					switch {
					case o == Canceled:
						canceled++
					case i == 0:
						satisfied++
						require.Equal(t, n-1, p.CancelKey(1))
						require.Zero(t, p.Stats().Keys, "without operations, though visits are under way")
						_, err := p.Park(time.Hour, nil, nil, 1)
						require.NoError(t, err)
					default:
						t.Error("satisfied after it was canceled")
					}
				}, 1)
				require.NoError(t, err)
			}
			require.Equal(t, 1, p.Notify(1))
			require.Equal(t, 1, satisfied)
			require.Equal(t, n-1, canceled)
			require.EqualValues(t, 1, p.verify(t).Pending, "that which was parked meanwhile")
		})
	}
}

// Those whom a visit has yet to come to may all be gone, and others be there that came later.
func TestVisitEndsWhereItHasTo(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		const n = 3 * batch
		stays, err := p.Park(time.Hour, never, nil, 1)
		require.NoError(t, err)
		var ops []*Op[int]
		for i := range n {
			o, err := p.Park(time.Hour, nil, func(Outcome) {
				if i > 0 {
					return
				}
				for _, o := range ops[1:] {
					require.True(t, o.Cancel())
				}
				_, err := p.Park(time.Hour, nil, nil, 1)
				require.NoError(t, err)
			}, 1)
			require.NoError(t, err)
			ops = append(ops, o)
		}
		require.Equal(t, 1, p.Notify(1))
		require.Equal(t, Pending, stays.Outcome())
		require.EqualValues(t, 2, p.verify(t).Watched)
	})
}

// Visits of one key that are in the middle at the same time do not disturb each other.
// All that a visit was to come to leaves meanwhile, and another comes: that one stays under
// the key, though the marks of the visit were before it.
func TestVisitWhoseRingIsReplaced(t *testing.T) {
	for _, early := range []bool{true, false} { // it comes before the others leave, or after
		bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
			var ops []*Op[int]
			var late ends
			visiting := false
			park := func() {
				_, err := p.Park(time.Hour, nil, late.done, 1)
				require.NoError(t, err)
			}
			for range batch + 8 {
				o, err := p.Park(time.Hour, func() bool {
					if !visiting {
						return false
					}
					visiting = false
					if early {
						park()
					}
					for _, o := range ops {
						require.True(t, o.Cancel())
					}
					if !early {
						park()
					}
					return false
				}, nil, 1)
				require.NoError(t, err)
				ops = append(ops, o)
			}
			visiting = true
			require.Zero(t, p.Notify(1))
			require.Empty(t, late.all())
			require.EqualValues(t, 1, p.verify(t).Keys)
			require.Equal(t, 1, p.Notify(1))
			require.Equal(t, []Outcome{Satisfied}, late.all())
			require.Zero(t, p.verify(t).Keys)
		})
	}
}

func TestNestedVisits(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		const n, visits = 5 * batch, 4
		asked, begun := 0, visits
		for i := range n {
			_, err := p.Park(time.Hour, func() bool {
				asked++
				if begun < visits && i == batch*begun {
					begun++
					require.Zero(t, p.Notify(1))
				}
				return false
			}, nil, 1)
			require.NoError(t, err)
		}
		asked, begun = 0, 1
		require.Zero(t, p.Notify(1))
		// 1, 2 and 3 operations run their try when a visit comes. The visit passes over them,
		// and they run it once more when they have the answer.
		require.Equal(t, visits*n-(1+2+3)+3, asked)
		p.verify(t)
		require.Equal(t, n, p.CancelKey(1))
	})
}

func TestPanicInTry(t *testing.T) {
	for _, n := range []int{3, 3 * batch} {
		bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
			bad := false
			var e ends
			for i := range n {
				_, err := p.Park(time.Hour, func() bool {
					if bad && i%3 == 1 {
						panic(i)
					}
					return bad
				}, e.done, 1)
				require.NoError(t, err)
			}
			bad = true
			require.PanicsWithValue(t, 1, func() { p.Notify(1) }, "the first panic goes on")
			require.Len(t, e.all(), n/3*2, "the others were visited")
			require.EqualValues(t, n/3, p.verify(t).Pending, "those stay parked")
			bad = false
			require.Zero(t, p.Notify(1), "and can be asked again")
			require.Equal(t, n/3, p.CancelKey(1))
		})
	}
}

func TestPanicInDone(t *testing.T) {
	for _, n := range []int{3, 3 * batch} {
		bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
			var e ends
			park := func() {
				for i := range n {
					_, err := p.Park(time.Hour, nil, func(o Outcome) {
						e.done(o)
						if i%2 == 0 {
							panic(i)
						}
					}, 1, 100+i)
					require.NoError(t, err)
				}
			}
			for _, end := range []func(){func() { p.Notify(1) }, func() { p.CancelKey(1) }, p.Close} {
				park()
				require.Panics(t, end)
				require.Len(t, e.all(), n)
				e.list = nil
				require.Zero(t, p.verify(t).Pending)
			}
			require.Zero(t, w.Len())
		})
	}
}

func TestGoexit(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		const n = 2*batch + 2
		bad := false
		var e ends
		for i := range n {
			_, err := p.Park(time.Hour, func() bool {
				if bad && i%4 == 1 {
					runtime.Goexit()
				}
				return bad
			}, func(o Outcome) {
				e.done(o)
				if i%4 == 2 {
					runtime.Goexit()
				}
			}, 1)
			require.NoError(t, err)
		}
		bad = true
		ended := make(chan bool)
		go func() {
			returned := false
			defer func() { ended <- returned }()
			p.Notify(1)
			returned = true
		}()
		require.False(t, <-ended)
		require.Len(t, e.all(), n-17)
		require.EqualValues(t, 17, p.verify(t).Pending)
		bad = false
	})
}

// A panic or Goexit in Park itself leaves nothing behind.
func TestPanicInPark(t *testing.T) {
	for at := 1; at <= 2; at++ {
		bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
			asked := 0
			bad := func() bool {
				if asked++; asked == at {
					panic("oops")
				}
				return false
			}
			require.PanicsWithValue(t, "oops", func() { p.Park(time.Hour, bad, func(Outcome) { t.Error("done") }, 1, 2) })
			require.Zero(t, w.Len())
			st := p.verify(t)
			require.Zero(t, st.Pending)
			require.EqualValues(t, at-1, st.Canceled)

			asked = 0
			ended := make(chan bool)
			go func() {
				defer close(ended)
				p.Wait(t.Context(), time.Hour, func() bool {
					if asked++; asked == at {
						runtime.Goexit()
					}
					return false
				}, 1, 2)
			}()
			<-ended
			require.Zero(t, w.Len())
			require.Zero(t, p.verify(t).Pending)
		})
	}
}

// A try that panics in Park, after it has ended its own operation: that is finished.
func TestPanicInParkOfWhatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		asked := 0
		require.PanicsWithValue(t, "oops", func() {
			p.Park(time.Hour, func() bool {
				if asked++; asked == 2 {
					require.Equal(t, 1, p.CancelKey(2))
					panic("oops")
				}
				return false
			}, nil, 1, 2)
		})
		require.Zero(t, w.Len())
		require.Equal(t, Stats{Parked: 1, Canceled: 1, Checks: 2}, p.verify(t))
	})
}

// An operation that the second question satisfies has its done called after Park has registered it
// in full. Otherwise, another goroutine could call it, too.
func TestDoneAfterRegistration(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel, p *Purgatory[int]) {
		var o *Op[int]
		asked, called := 0, 0
		_, err := p.Park(time.Hour, func() bool {
			o, _ = p.stripes[p.stripeOf(1)].first(1)
			asked++
			return asked == 2
		}, func(Outcome) {
			called++
			require.NotZero(t, o.state.Load()&parked)
		}, 1)
		require.NoError(t, err)
		require.Equal(t, 1, called)
	})
}

// An event that comes while a try is about to panic is followed by a question.
func TestNotifyDuringTryThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T, _ *timingwheel.TimingWheel, p *Purgatory[int]) {
		var state atomic.Int32 // 0: no, 1: panic, 2: yes
		goOn := make(chan struct{})
		var e ends
		_, err := p.Park(time.Hour, func() bool {
			s := state.Load()
			if s == 1 {
				<-goOn
				panic("oops")
			}
			return s == 2
		}, e.done, 1)
		require.NoError(t, err)
		state.Store(1)
		result := make(chan any)
		go func() {
			defer func() { result <- recover() }()
			p.Notify(1)
		}()
		synctest.Wait()
		state.Store(2)
		require.Zero(t, p.Notify(1))
		close(goOn)
		require.Equal(t, "oops", <-result)
		require.Equal(t, []Outcome{Satisfied}, e.all())
	})
}

// The wheel's panic handler gets what panics in done at the deadline, and at Stop.
func TestPanicOnWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var caught atomic.Int32
		w := timingwheel.New(timingwheel.WithPanicHandler(func(any, []byte) { caught.Add(1) }))
		p := New[int](w)
		for i := range 10 {
			_, err := p.Park(time.Second+time.Hour*time.Duration(i%2), never, func(Outcome) { panic("oops") }, i)
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 5, caught.Load())
		w.Stop()
		synctest.Wait()
		require.EqualValues(t, 10, caught.Load())
		st := p.verify(t)
		require.Equal(t, []int64{5, 5}, []int64{st.Expired, st.Closed})
		require.Zero(t, w.Stats().Running)
	})
}

// A wheel under manual drive, with everything on one goroutine.
func TestManualDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
		p := New[int](w)
		var e ends
		_, err := p.Park(time.Second, never, e.done, 1)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Equal(t, 1, w.Drive(0))
		require.Equal(t, []Outcome{Expired}, e.all())
		synctest.Wait()
		p.verify(t)
		w.Stop()
	})
}
