package timingwheel_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// likeness_test.go compares contexts with package context, step by step. The tests here are for
// differences, for parents that are not of package context, and for real goroutines and real time.

type ctxKey string

var errCause = errors.New("the cause")

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

func TestContextEndsAtItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		for name, ctx := range map[string]func() (context.Context, context.CancelFunc){
			"WithTimeout":  func() (context.Context, context.CancelFunc) { return w.WithTimeout(t.Context(), 50*msec) },
			"WithDeadline": func() (context.Context, context.CancelFunc) { return w.WithDeadline(t.Context(), start.Add(50*msec)) },
			"WithTimeoutCause": func() (context.Context, context.CancelFunc) {
				return w.WithTimeoutCause(t.Context(), 50*msec, errCause)
			},
			"WithDeadlineCause": func() (context.Context, context.CancelFunc) {
				return w.WithDeadlineCause(t.Context(), start.Add(50*msec), errCause)
			},
		} {
			t.Log(name)
			start = time.Now()
			ctx, cancel := ctx()
			defer cancel()
			at, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, start.Add(50*msec), at)
			require.Equal(t, fmt.Sprintf("%v.WithDeadline(%v [50ms])", t.Context(), at), fmt.Sprint(ctx))
			require.NoError(t, ctx.Err())
			require.NoError(t, context.Cause(ctx))
			require.False(t, ended(ctx))
			require.Equal(t, 1, w.Len())

			<-ctx.Done()
			require.Equal(t, start.Add(50*msec), time.Now())
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
			var timeout net.Error
			require.ErrorAs(t, ctx.Err(), &timeout)
			require.True(t, timeout.Timeout())
			if strings.HasSuffix(name, "Cause") {
				require.Equal(t, errCause, context.Cause(ctx))
			} else {
				require.Equal(t, context.DeadlineExceeded, context.Cause(ctx))
			}
			cancel()
			require.Equal(t, context.DeadlineExceeded, ctx.Err(), "a cancel that comes too late changes nothing")
			require.Zero(t, w.Len())
		}
	})
}

func TestContextOfAPastDeadline(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualDrive()) // which nobody drives
	for range 2 {
		ctx, cancel := w.WithDeadlineCause(context.Background(), time.Now(), errCause)
		require.True(t, ended(ctx))
		require.Equal(t, context.DeadlineExceeded, ctx.Err())
		require.Equal(t, errCause, context.Cause(ctx))
		cancel()
		require.Equal(t, context.DeadlineExceeded, ctx.Err())
		for _, d := range []time.Duration{0, -1} {
			ctx, cancel = w.WithTimeout(context.Background(), d)
			require.Equal(t, context.DeadlineExceeded, ctx.Err(), "without asking for Done first")
			cancel()
		}
		w.Stop() // and once more
	}
}

func TestContextIsCanceled(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		for _, look := range []bool{true, false} {
			ctx, cancel := w.WithTimeoutCause(t.Context(), time.Hour, errCause)
			var done <-chan struct{}
			if look {
				done = ctx.Done()
			}
			cancel()
			cancel()
			require.Equal(t, context.Canceled, ctx.Err())
			require.Equal(t, context.Canceled, context.Cause(ctx), "the cause is the deadline's")
			require.True(t, ended(ctx))
			if look {
				<-done
			}
			require.Zero(t, w.Len())
		}
	})
}

// A derived context prints the names of its parents as with package context, except those that
// package context itself does not name. Printing is safe at any time.
func TestStringOfWhatIsDerived(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	at := time.Now().Add(time.Hour).Round(0)
	type maker func(parent context.Context) (context.Context, context.CancelFunc)
	earlier := func(with func(context.Context, time.Time) (context.Context, context.CancelFunc), by time.Duration) maker {
		return func(parent context.Context) (context.Context, context.CancelFunc) { return with(parent, at.Add(-by)) }
	}
	print := func(with func(context.Context, time.Time) (context.Context, context.CancelFunc), derive func(context.Context) context.Context) string {
		ctx, cancel := with(context.WithValue(t.Context(), ctxKey("user"), "gopher"), at)
		defer cancel()
		ctx = derive(ctx)
		var all sync.WaitGroup
		all.Go(cancel)
		name := fmt.Sprint(ctx)
		all.Wait()
		return regexp.MustCompile(`\[\S+\]`).ReplaceAllString(name, "[]") // the time that is left
	}
	derive := func(make maker) func(context.Context) context.Context {
		return func(parent context.Context) context.Context {
			ctx, cancel := make(parent)
			t.Cleanup(cancel)
			return ctx
		}
	}
	for name, c := range map[string]struct {
		ours, theirs func(context.Context) context.Context
	}{
		"itself":        {func(ctx context.Context) context.Context { return ctx }, nil},
		"WithValue":     {func(ctx context.Context) context.Context { return context.WithValue(ctx, ctxKey("k"), t) }, nil},
		"WithoutCancel": {context.WithoutCancel, nil},
		"a later one":   {derive(earlier(w.WithDeadline, -time.Hour)), derive(earlier(context.WithDeadline, -time.Hour))},
		"an earlier":    {derive(earlier(w.WithDeadline, time.Minute)), derive(earlier(context.WithDeadline, time.Minute))},
		"behind a value": {func(ctx context.Context) context.Context {
			return derive(context.WithCancel)(context.WithValue(ctx, ctxKey("k"), "v"))
		}, nil},
	} {
		if c.theirs == nil {
			c.theirs = c.ours
		}
		require.Equal(t, print(context.WithDeadline, c.theirs), print(w.WithDeadline, c.ours), name)
	}
	require.Equal(t, "context.stopCtx.WithCancel", print(w.WithDeadline, derive(context.WithCancel)))
}

func TestContextFollowsItsParent(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		for _, look := range []bool{true, false} {
			parent, cancelParent := context.WithCancelCause(t.Context())
			ctx, cancel := w.WithTimeout(context.WithValue(parent, ctxKey("a"), 1), time.Hour)
			var done <-chan struct{}
			var child context.Context
			if look {
				done = ctx.Done()
				var cancelChild context.CancelFunc
				child, cancelChild = context.WithCancel(context.WithValue(ctx, ctxKey("b"), 2))
				defer cancelChild()
			}
			cancelParent(errCause)
			if look {
				select {
				case <-done: // closed already, and nobody has asked anything
				default:
					t.Error("the channel is still open")
				}
			}
			require.True(t, ended(ctx))
			require.Equal(t, context.Canceled, ctx.Err())
			require.Equal(t, errCause, context.Cause(ctx))
			require.Zero(t, w.Len())
			if look {
				synctest.Wait()
				<-done
				<-child.Done()
				require.Equal(t, context.Canceled, child.Err())
				require.Equal(t, errCause, context.Cause(child))
				require.Equal(t, 2, child.Value(ctxKey("b")))
				require.Equal(t, 1, child.Value(ctxKey("a")))
			}
			cancel()

			// With nobody who asks, the timer leaves the wheel with the CancelFunc, or at the
			// deadline.
			parent, cancelParent = context.WithCancelCause(t.Context())
			_, cancel = w.WithTimeout(parent, time.Hour)
			late, cancelLate := w.WithTimeout(parent, time.Minute)
			require.Equal(t, 2, w.Len())
			cancelParent(errCause)
			cancel()
			require.Equal(t, 1, w.Len())
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Zero(t, w.Len())
			require.Equal(t, context.Canceled, late.Err(), "not what came later")
			require.Equal(t, errCause, context.Cause(late))
			cancelLate()
		}
	})
}

func TestContextOfAParentThatHasEnded(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	parent, cancelParent := context.WithCancelCause(context.Background())
	cancelParent(errCause)
	for _, d := range []time.Duration{time.Hour, -1} {
		ctx, cancel := w.WithTimeout(parent, d)
		require.True(t, ended(ctx))
		require.Equal(t, context.Canceled, ctx.Err(), "what came first")
		require.Equal(t, errCause, context.Cause(ctx))
		require.Zero(t, w.Len())
		cancel()
	}
	// At the same time.
	for range 200 {
		parent, cancelParent := context.WithCancelCause(context.Background())
		go cancelParent(errCause)
		ctx, cancel := w.WithTimeout(parent, time.Hour)
		<-ctx.Done()
		require.Equal(t, context.Canceled, ctx.Err())
		require.Equal(t, errCause, context.Cause(ctx))
		cancel()
		require.Zero(t, w.Len())
	}
}

func TestContextWithAnEarlierParent(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		outer, cancelOuter := w.WithTimeoutCause(t.Context(), 10*msec, errCause)
		defer cancelOuter()
		inner, cancelInner := w.WithTimeout(outer, time.Hour)
		defer cancelInner()
		require.Equal(t, 1, w.Len(), "the later deadline has no use")
		at, ok := inner.Deadline()
		require.True(t, ok)
		require.Equal(t, start.Add(10*msec), at)
		<-inner.Done()
		require.Equal(t, context.DeadlineExceeded, inner.Err())
		require.Equal(t, errCause, context.Cause(inner))
	})
}

// A context that package context derives from a wheel's context behaves like one derived from a
// context of package context. It costs no goroutine, or one where a wrapper hides the method
// AfterFunc.
func TestDerivedContexts(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		ctx, cancel := w.WithTimeoutCause(t.Context(), 10*msec, errCause)
		defer cancel()
		goroutines := settledGoroutines()
		type wrapped struct{ context.Context }
		child, cancelChild := context.WithCancel(ctx)
		below, cancelBelow := context.WithCancel(context.WithValue(wrapped{context.WithValue(ctx, ctxKey("a"), 1)}, ctxKey("b"), 2))
		timed, cancelTimed := context.WithTimeout(ctx, time.Hour)
		without := context.WithoutCancel(ctx)
		called := make(chan error, 3)
		for range 2 {
			context.AfterFunc(context.WithValue(ctx, ctxKey("c"), 3), func() { called <- context.Cause(ctx) })
		}
		stop := context.AfterFunc(ctx, func() { called <- nil })
		require.True(t, stop())
		require.False(t, stop())
		blocked := context.AfterFunc(ctx, func() { <-called }) // it must not hold the others up
		const hidden = 3                                       // below, and the two with a value
		settleGoroutines(t, goroutines+hidden)

		<-ctx.Done()
		synctest.Wait()
		for _, derived := range []context.Context{child, below, timed} {
			require.True(t, ended(derived))
			require.Equal(t, context.DeadlineExceeded, derived.Err())
			require.Equal(t, errCause, context.Cause(derived))
		}
		require.NoError(t, without.Err())
		_, ok := without.Deadline()
		require.False(t, ok)
		synctest.Wait()
		require.Equal(t, errCause, <-called)
		require.False(t, blocked())
		cancelChild()
		cancelBelow()
		cancelTimed()

		// And one that is derived afterwards.
		late, cancelLate := context.WithCancel(ctx)
		defer cancelLate()
		require.Equal(t, errCause, context.Cause(late))
	})
}

// A wheel's context that is canceled by hand takes its children along before
// CancelFunc returns, and itself off its parent.
func TestCancelTakesChildrenAlong(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	parent := newForeign()
	ctx, cancel := w.WithTimeout(parent, time.Hour)
	child, cancelChild := context.WithCancel(ctx)
	defer cancelChild()
	grandchild, cancelGrandchild := w.WithTimeout(child, time.Minute)
	defer cancelGrandchild()
	require.Equal(t, 1, parent.registered())
	cancel()
	require.Equal(t, context.Canceled, child.Err())
	require.Equal(t, context.Canceled, grandchild.Err())
	require.Zero(t, parent.registered())
	waitFor(t, func() bool { return w.Len() == 0 })
}

// foreign is a context that is not one of package context's, with an AfterFunc.
type foreign struct {
	context.Context
	mu    sync.Mutex
	done  chan struct{}
	err   error
	funcs map[*int]func()
}

func newForeign() *foreign {
	return &foreign{Context: context.Background(), done: make(chan struct{}), funcs: map[*int]func(){}}
}

func (f *foreign) Done() <-chan struct{} { return f.done }

func (f *foreign) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *foreign) registered() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.funcs)
}

func (f *foreign) AfterFunc(g func()) (stop func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := new(int)
	f.funcs[k] = g
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, ok := f.funcs[k]
		delete(f.funcs, k)
		return ok
	}
}

func (f *foreign) cancel(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	close(f.done)
	for _, g := range f.funcs {
		go g()
	}
	f.funcs = nil
}

func TestForeignParents(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		parent := newForeign()
		other, _ := w.Schedule(2*time.Hour, func() {}) // so that the driver is there
		goroutines := settledGoroutines()
		ctx, cancel := w.WithTimeout(parent, time.Hour)
		defer cancel()
		stop := context.AfterFunc(ctx, func() {})
		defer stop()
		done := ctx.Done()
		settleGoroutines(t, goroutines)
		require.True(t, other.Cancel())
		parent.cancel(errCause)
		<-done
		require.Equal(t, errCause, ctx.Err())
		require.Equal(t, errCause, context.Cause(ctx))
		synctest.Wait()
		require.Zero(t, w.Len())

		// Without its AfterFunc, and with a Done of its own: it is done when that says
		// so.
		inner, cancelInner := context.WithCancelCause(t.Context())
		own := ownDone{inner, make(chan struct{})}
		ctx, cancel = w.WithTimeout(own, time.Hour)
		defer cancel()
		cancelInner(errCause)
		synctest.Wait()
		require.False(t, ended(ctx))
		require.NoError(t, ctx.Err())
		close(own.done)
		<-ctx.Done()
		require.Equal(t, context.Canceled, ctx.Err())
		require.Equal(t, errCause, context.Cause(ctx))
		synctest.Wait()
	})
}

// A parent with a method AfterFunc is registered with when a context is made below it, as package
// context does. The function given to it ends the context, because Done of such a parent may never
// close.
func TestParentWithAfterFunc(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		parent := newForeign()
		_, cancelFirst := w.WithTimeout(parent, time.Hour)
		ctx, cancel := w.WithDeadlineCause(parent, time.Now().Add(time.Hour), errors.New("late"))
		require.Equal(t, 2, parent.registered())
		cancelFirst()
		require.Equal(t, 1, parent.registered())

		child, cancelChild := w.WithTimeout(ctx, time.Minute)
		defer cancelChild()
		require.Equal(t, 1, parent.registered(), "a context of the wheel's is no stranger")
		require.NoError(t, ctx.Err())
		parent.done = make(chan struct{}) // so that cancel closes another than ctx has seen
		parent.cancel(errCause)
		<-ctx.Done()
		for _, ctx := range []context.Context{ctx, child} {
			require.True(t, ended(ctx))
			require.Equal(t, errCause, ctx.Err())
			require.Equal(t, errCause, context.Cause(ctx))
		}
		require.Zero(t, w.Len())
		cancel()
	})
}

type ownDone struct {
	context.Context
	done chan struct{}
}

func (o ownDone) Done() <-chan struct{} { return o.done }

// A deadline outlives its wheel.
func TestContextsOutliveTheWheel(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		looked, cancel1 := w.WithTimeoutCause(t.Context(), 10*msec, errCause)
		defer cancel1()
		looked.Done()
		ctx, cancel2 := w.WithTimeout(t.Context(), 20*msec)
		defer cancel2()
		canceled, cancel3 := w.WithTimeout(t.Context(), 20*msec)
		parent, cancelParent := context.WithCancel(t.Context())
		followed, cancel4 := w.WithTimeout(parent, 20*msec)
		defer cancel4()
		require.Nil(t, w.Stop())
		late, cancel5 := w.WithTimeoutCause(t.Context(), 15*msec, errCause)
		defer cancel5()
		cancel3()
		cancelParent()

		<-looked.Done()
		require.Equal(t, 10*msec, time.Since(start))
		require.Equal(t, errCause, context.Cause(looked))
		<-late.Done()
		require.Equal(t, 15*msec, time.Since(start))
		require.Equal(t, errCause, context.Cause(late))
		<-ctx.Done()
		require.Equal(t, 20*msec, time.Since(start))
		require.Equal(t, context.DeadlineExceeded, ctx.Err())
		require.Equal(t, context.Canceled, canceled.Err())
		require.Equal(t, context.Canceled, followed.Err())
	})
}

// settledGoroutines counts goroutines when those of the bubble are asleep, and those
// that ended before it have had time to disappear. On a busy machine some may need longer:
// so a later count can be lower.
func settledGoroutines() int {
	synctest.Wait()
	n := runtime.NumGoroutine()
	for same := 0; same < 100; same++ {
		runtime.Gosched()
		if now := runtime.NumGoroutine(); now != n {
			n, same = now, 0
		}
	}
	return n
}

// settleGoroutines waits until there are no more than so many goroutines. It counts steps,
// since the time of a bubble does not pass meanwhile.
func settleGoroutines(t *testing.T, most int) {
	t.Helper()
	synctest.Wait()
	for range 3_000_000 {
		if runtime.NumGoroutine() <= most {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d goroutines, not %d", runtime.NumGoroutine(), most)
}

// The first end counts, also while the driver is late.
func TestContextOfAParentThatEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive())
		defer w.Stop()
		parent, cancelParent := context.WithCancelCause(t.Context())
		ctx, cancel := w.WithTimeout(parent, msec)
		defer cancel()
		time.Sleep(msec)
		cancelParent(errCause)
		w.Drive(0)
		require.Equal(t, context.Canceled, ctx.Err())
		require.Equal(t, errCause, context.Cause(ctx))

		ctx, cancel = w.WithTimeout(t.Context(), msec)
		defer cancel()
		time.Sleep(msec)
		w.Drive(0)
		require.Equal(t, context.DeadlineExceeded, ctx.Err(), "at once, though another goroutine ends it")
	})
}

// slowParent has methods that wait for something on the wheel.
type slowParent struct {
	context.Context
	done chan struct{}
	lock chan struct{} // a mutex on which a bubble's time goes on
}

func (p *slowParent) Done() <-chan struct{} {
	p.lock <- struct{}{}
	defer func() { <-p.lock }()
	return p.done
}

func (p *slowParent) AfterFunc(func()) (stop func() bool) {
	return func() bool {
		p.Done()
		runtime.Goexit()
		return true
	}
}

// The methods of a parent are a user's code, and hold nobody up either.
func TestParentsHoldNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		parent := &slowParent{Context: t.Context(), done: make(chan struct{}), lock: make(chan struct{}, 1)}
		var contexts []context.Context
		for range 3 {
			ctx, cancel := w.WithTimeout(parent, 5*msec)
			contexts = append(contexts, ctx)
			_ = cancel // it would end this goroutine
		}
		var ran atomic.Bool
		w.AfterFunc(5*msec, func() { ran.Store(true) })
		parent.lock <- struct{}{}
		w.Sleep(30 * msec)
		synctest.Wait()
		require.True(t, ran.Load())
		for _, ctx := range contexts {
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
		}
		<-parent.lock
	})
}

// A parent that asks its child, or that ends while the child is being made.
type curiousParent struct {
	context.Context
	done  chan struct{}
	child context.Context
}

func (p *curiousParent) Done() <-chan struct{} {
	if p.child != nil {
		_ = p.child.Err()
	}
	return p.done
}

func (p *curiousParent) Err() error { return errCause }

func (p *curiousParent) AfterFunc(f func()) (stop func() bool) {
	if p.child == nil {
		close(p.done)
		go f()
	}
	return func() bool { return false }
}

func TestCuriousParents(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	parent := &curiousParent{Context: context.Background(), done: make(chan struct{})}
	ctx, cancel := w.WithTimeout(parent, time.Hour)
	<-ctx.Done()
	require.Equal(t, errCause, ctx.Err())
	cancel()
	waitFor(t, func() bool { return w.Len() == 0 })

	parent = &curiousParent{Context: context.Background(), done: make(chan struct{}), child: ctx}
	ctx, cancel = w.WithTimeout(parent, time.Hour)
	parent.child = ctx
	require.False(t, ended(ctx))
	require.NoError(t, ctx.Err())
	cancel()
	require.Equal(t, context.Canceled, ctx.Err())
}

// However deep, and all at once.
func TestDeepContexts(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	root, cancelRoot := context.WithCancelCause(context.Background())
	ctx := root
	for i := range 2000 {
		var cancel context.CancelFunc
		d := time.Hour + time.Duration(i%2)*time.Minute // the longer ones have no timer
		ctx, cancel = w.WithTimeout(context.WithValue(ctx, ctxKey("a"), i), d)
		defer cancel()
	}
	require.False(t, ended(ctx))
	cancelRoot(errCause)
	require.True(t, ended(ctx))
	require.Equal(t, errCause, context.Cause(ctx))
	require.Equal(t, 1999, ctx.Value(ctxKey("a")))
}

// All see one channel, whoever makes it.
func TestDoneIsOneChannel(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for range 500 {
		ctx, cancel := w.WithTimeout(context.Background(), time.Hour)
		var channels [4]<-chan struct{}
		var wg sync.WaitGroup
		for i := range channels {
			wg.Go(func() { channels[i] = ctx.Done() })
		}
		wg.Wait()
		cancel()
		for _, c := range channels {
			require.Equal(t, channels[0], c)
			<-c
		}
	}
}

// Neither the wheel nor package time keeps a context that has ended, or a timer that
// was stopped, also when the wheel was stopped before.
func TestNothingIsKept(t *testing.T) {
	others(t, 30*time.Minute) // package time keeps what is stopped among others
	for _, stopWheel := range []bool{false, true} {
		w := timingwheel.New(timingwheel.WithShards(1))
		defer w.Stop()
		kept := useAll(t, w, stopWheel)
		waitFor(t, func() bool {
			runtime.GC()
			return !slices.ContainsFunc(kept, func(isKept func() bool) bool { return isKept() })
		})
	}
}

// useAll uses each of the wheel's own, and returns functions that tell whether it is
// kept. It is a function of its own so that nothing is left on the stack.
//
//go:noinline
func useAll(t *testing.T, w *timingwheel.TimingWheel, stopWheel bool) (kept []func() bool) {
	with := func(d time.Duration) (context.Context, context.CancelFunc) {
		big := new([1 << 10]byte)
		kept = append(kept, isKept(big))
		return w.WithTimeout(context.WithValue(context.Background(), ctxKey("big"), big), d)
	}
	canceled, cancel := with(time.Hour)
	expired, cancelExpired := with(msec)
	defer cancelExpired()
	timer, ticker := w.NewTimer(time.Hour), w.NewTicker(time.Hour)
	kept = append(kept, isKept(timer), isKept(ticker))
	if stopWheel {
		w.Stop()
	}
	others(t, 2*time.Hour)
	<-expired.Done()
	cancel()
	<-canceled.Done()
	timer.Stop()
	ticker.Stop()
	return kept
}

// The end of a parent costs a handful of goroutines, however many children it has.
func TestParentOfMany(t *testing.T) {
	const children, handful = 10_000, 20
	withoutCollector(t)
	w := timingwheel.New()
	defer w.Stop()
	for _, cause := range []error{nil, errCause} {
		parent, cancelParent := context.WithCancelCause(context.Background())
		contexts := make([]context.Context, children)
		for i := range contexts {
			ctx, cancel := w.WithTimeout(context.WithValue(parent, ctxKey("a"), i), time.Hour)
			defer cancel()
			if i%2 == 0 {
				ctx.Done()
			}
			contexts[i] = ctx
		}
		before := runtime.NumGoroutine()
		cancelParent(cause)
		require.Less(t, runtime.NumGoroutine(), before+handful)
		for i, ctx := range contexts {
			require.True(t, ended(ctx))
			require.Equal(t, context.Canceled, ctx.Err())
			require.Equal(t, context.Cause(parent), context.Cause(ctx))
			require.Equal(t, i, ctx.Value(ctxKey("a")))
		}
		require.Zero(t, w.Len(), "whoever asks for Err takes the timer off")
	}
}

// A parent that lives on holds nothing of a child that has ended, also while another
// child goes on; and the wheel holds no parent whose children have ended.
func TestParentsAndChildrenPart(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	parent, cancelParent := context.WithCancel(context.Background())
	defer cancelParent()
	var kept []func() bool
	var contexts []context.Context // that a user keeps
	with := func(parent context.Context) (context.Context, context.CancelFunc) {
		big := new([1 << 10]byte)
		kept = append(kept, isKept(big))
		return w.WithTimeout(context.WithValue(parent, ctxKey("big"), big), time.Hour)
	}
	_, cancelFirst := with(parent)
	_, cancelSecond := w.WithTimeout(parent, time.Hour)
	defer cancelSecond()
	cancelFirst()
	for range 3 {
		big := new([1 << 10]byte)
		kept = append(kept, isKept(big))
		forgotten, cancelForgotten := context.WithCancel(context.WithValue(context.Background(), ctxKey("big"), big))
		_ = cancelForgotten // the collector ends it
		_, cancel1 := with(forgotten)
		_, cancel2 := with(forgotten)
		cancel1()
		cancel2()
		older, cancelOlder := w.WithTimeout(parent, time.Hour)
		contexts = append(contexts, older)
		_, cancelNewer := with(parent)
		cancelOlder()
		cancelNewer()
	}
	waitFor(t, func() bool {
		runtime.GC()
		return !slices.ContainsFunc(kept, func(isKept func() bool) bool { return isKept() })
	})
	runtime.KeepAlive(contexts)
}

// twin is a context that shares its Done channel with another, but not its error.
type twin struct {
	context.Context
	done <-chan struct{}
	err  error
}

func (t *twin) Done() <-chan struct{} { return t.done }

func (t *twin) Err() error {
	select {
	case <-t.done:
		return t.err
	default:
		return nil
	}
}

func TestTwinParents(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		done := make(chan struct{})
		others := []error{errCause, errors.New("another"), uncomparable{[]int{1}}}
		var contexts []context.Context
		for _, err := range others {
			ctx, cancel := w.WithTimeout(&twin{context.Background(), done, err}, time.Hour)
			defer cancel()
			contexts = append(contexts, ctx)
			ctx.Done()
		}
		close(done)
		synctest.Wait()
		for i, ctx := range contexts {
			late, cancel := w.WithTimeout(&twin{context.Background(), done, others[i]}, time.Hour)
			defer cancel()
			for _, ctx := range []context.Context{ctx, late} {
				require.True(t, ended(ctx))
				require.Equal(t, others[i], ctx.Err())
				require.Equal(t, others[i], context.Cause(ctx))
			}
		}
	})
}

// silent is a context that ends without an error.
type silent struct{ context.Context }

func (silent) Err() error { return nil }

func TestParentWithoutAnError(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	parent, cancelParent := context.WithCancel(context.Background())
	cancelParent()
	ctx, cancel := w.WithTimeout(silent{parent}, time.Hour)
	defer cancel()
	require.True(t, ended(ctx))
	require.Equal(t, context.Canceled, ctx.Err())

	// And one that ends between the two calls.
	parent, cancelParent = context.WithCancel(context.Background())
	ctx, cancel = w.WithTimeout(silent{parent}, time.Hour)
	defer cancel()
	cancelParent()
	require.True(t, ended(ctx))
	require.Equal(t, context.Canceled, ctx.Err())
}

// uncomparable is an error that == panics on.
type uncomparable struct{ _ []int }

func (uncomparable) Error() string { return "uncomparable" }

func TestCauseThatCannotBeCompared(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	cause := uncomparable{[]int{1}}
	parent, cancelParent := context.WithCancelCause(context.Background())
	ctx, cancel := w.WithTimeout(parent, time.Hour)
	defer cancel()
	cancelParent(cause)
	require.Equal(t, cause, context.Cause(ctx), "at once")
	require.Equal(t, context.Canceled, ctx.Err())

	ctx, cancel = w.WithTimeoutCause(context.Background(), 0, cause)
	defer cancel()
	require.Equal(t, cause, context.Cause(ctx))
}

// others starts timers of package time until the test's end.
func others(t *testing.T, d time.Duration) {
	for range 100 {
		timer := time.AfterFunc(d, func() {})
		t.Cleanup(func() { timer.Stop() })
	}
}

func isKept[T any](v *T) func() bool {
	w := weak.Make(v)
	return func() bool { return w.Value() != nil }
}

func TestContextFromNilParentPanics(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	var none context.Context
	for _, f := range []func(){
		func() { w.WithTimeout(none, 1) },
		func() { w.WithTimeoutCause(none, 1, errCause) },
		func() { w.WithDeadline(none, time.Now()) },
		func() { w.WithDeadlineCause(none, time.Now(), errCause) },
	} {
		require.PanicsWithValue(t, "timingwheel: cannot create context from nil parent", f)
	}
}

func TestContextValues(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	ctx := context.WithValue(context.Background(), ctxKey("a"), 1)
	for _, look := range []bool{false, true} {
		ctx, cancel := w.WithTimeout(ctx, time.Hour)
		defer cancel()
		if look {
			ctx.Done()
		}
		require.Equal(t, 1, ctx.Value(ctxKey("a")))
		require.Nil(t, ctx.Value(ctxKey("b")))
		require.Nil(t, ctx.Value("a"))
		child := context.WithValue(ctx, ctxKey("a"), 2)
		require.Equal(t, 2, child.Value(ctxKey("a")))
		require.Equal(t, 1, ctx.Value(ctxKey("a")))
	}
}

// When Err says that a context has ended, its channel is closed, also for those
// who got it before; and Cause agrees.
func TestErrAndDoneAgree(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(10 * time.Microsecond))
	defer w.Stop()
	for i := range 1500 {
		parent, cancelParent := context.WithCancelCause(context.Background())
		ctx, cancel := w.WithTimeoutCause(parent, time.Duration(rand.Int64N(int64(100*time.Microsecond))), errCause)
		var wg sync.WaitGroup
		wg.Go(func() {
			if i%4 == 0 {
				cancel()
				if ctx.Err() == nil {
					t.Error("CancelFunc returned, and the context goes on")
				}
			}
		})
		wg.Go(func() {
			if i%4 == 1 {
				cancelParent(errCause)
				if ctx.Err() == nil {
					t.Error("the parent has ended, and the context goes on")
				}
			}
		})
		for late := range 2 {
			wg.Go(func() {
				var done <-chan struct{}
				if late == 0 {
					done = ctx.Done()
				}
				for ctx.Err() == nil {
					runtime.Gosched()
				}
				select {
				case <-done:
				default:
					if late == 0 {
						t.Error("Err says that it ended, and Done is not closed")
					}
				}
				if !ended(ctx) {
					t.Error("Err says that it ended, and Done is not closed")
				}
				if err, cause := ctx.Err(), context.Cause(ctx); i%4 == 0 && err == context.Canceled && cause != err ||
					err == context.DeadlineExceeded && cause != errCause {
					t.Errorf("%v because of %v", err, cause)
				}
			})
		}
		wg.Wait()
		cancel()
		cancelParent(nil)
	}
	waitFor(t, func() bool { return w.Len() == 0 })
}

// A tree in which everybody cancels everybody, while deadlines come and the wheel
// stops: all end, nobody is stuck, and nothing is left.
func TestSimultaneousCancels(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	for round := range 20 {
		w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(4))
		root, cancelRoot := context.WithCancel(context.Background())
		all, cancels := []context.Context{root}, []context.CancelFunc{cancelRoot}
		for i := range 200 {
			parent := all[i/4]
			var ctx context.Context
			var cancel context.CancelFunc
			switch rand.IntN(4) {
			case 0:
				ctx, cancel = context.WithCancel(parent)
			case 1:
				ctx, cancel = w.WithTimeout(context.WithValue(parent, ctxKey("a"), i), time.Duration(rand.Int64N(int64(2*msec))))
			default:
				ctx, cancel = w.WithTimeout(parent, time.Hour)
			}
			all, cancels = append(all, ctx), append(cancels, cancel)
		}
		var wg sync.WaitGroup
		rand.Shuffle(len(cancels), func(i, j int) { cancels[i], cancels[j] = cancels[j], cancels[i] })
		for _, cancel := range cancels {
			wg.Go(cancel)
		}
		if round%2 == 0 {
			wg.Go(func() { w.Stop() })
		}
		for _, ctx := range all {
			wg.Go(func() {
				select {
				case <-ctx.Done():
				case <-time.After(30 * time.Second):
					t.Error("stuck")
				}
			})
		}
		wg.Wait()
		waitFor(t, func() bool { return w.Len() == 0 })
		w.Stop()
	}
	waitFor(t, func() bool { return runtime.NumGoroutine() <= goroutines })
}

// A parent ends while a child is canceled because the parent ends.
func TestInterlockedCancels(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	parent, cancelParent := w.WithTimeout(context.Background(), time.Hour)
	child, cancelChild := w.WithTimeout(parent, time.Minute)
	go func() { <-parent.Done(); cancelChild() }()
	cancelParent()
	<-child.Done()
	require.Error(t, child.Err())
}

func TestContextAllocations(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	cancelable, cancel := context.WithCancel(context.Background())
	defer cancel()
	shared, cancelShared := context.WithCancel(context.Background())
	defer cancelShared()
	_, cancelFirst := w.WithTimeout(shared, time.Hour)
	defer cancelFirst()
	for _, c := range []struct {
		name   string
		parent context.Context
		look   bool
		allocs float64
	}{
		{"background", context.Background(), false, 2}, // the context and its CancelFunc
		{"cancelable", cancelable, false, 2},
		{"background, Done", context.Background(), true, 3}, // and the channel
		{"cancelable, Done", cancelable, true, 7},           // and the inner context, its CancelFunc, and the parent's map
		{"cancelable, Done, not the first", shared, true, 5},
	} {
		allocs := testing.AllocsPerRun(1000, func() {
			ctx, cancel := w.WithTimeout(c.parent, time.Hour)
			if c.look {
				ctx.Done()
			}
			cancel()
		})
		require.LessOrEqual(t, allocs, c.allocs, c.name)
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { w.NewTimer(time.Hour).Stop() }), 4.0)
}

// waitFor polls until done returns true. Its limit of two minutes also suits a loaded machine.
func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("waited in vain\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// withoutCollector turns the collector off until the test has ended. While the collector frees the
// stacks of goroutines that have ended, runtime.NumGoroutine counts them again.
func withoutCollector(t *testing.T) {
	percent := debug.SetGCPercent(-1) // waits for the end of a run that is under way
	t.Cleanup(func() { debug.SetGCPercent(percent) })
}

// unlessShort is how often a test does what it does, or how much of it: n times, or less
// often under -short.
func unlessShort(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}
