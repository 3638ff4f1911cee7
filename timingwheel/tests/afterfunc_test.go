package timingwheel_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The tests in this file call the method AfterFunc of a context, as package context does,
// and as anybody may.

type afterFuncer interface {
	context.Context
	AfterFunc(f func()) (stop func() bool)
}

// endings are the ways in which a context ends.
var endings = map[string]func(w *timingwheel.TimingWheel) (ctx afterFuncer, end func()){
	"canceled": func(w *timingwheel.TimingWheel) (afterFuncer, func()) {
		ctx, cancel := w.WithTimeout(context.Background(), time.Hour)
		return ctx.(afterFuncer), cancel
	},
	"canceled below a parent": func(w *timingwheel.TimingWheel) (afterFuncer, func()) {
		parent, cancelParent := context.WithCancel(context.Background())
		ctx, cancel := w.WithTimeout(parent, time.Hour)
		return ctx.(afterFuncer), func() { cancel(); cancelParent() }
	},
	"with its parent": func(w *timingwheel.TimingWheel) (afterFuncer, func()) {
		parent, cancelParent := context.WithCancel(context.Background())
		ctx, _ := w.WithTimeout(parent, time.Hour)
		return ctx.(afterFuncer), cancelParent
	},
	"at the deadline": func(w *timingwheel.TimingWheel) (afterFuncer, func()) {
		ctx, _ := w.WithTimeout(context.Background(), time.Hour)
		return ctx.(afterFuncer), func() { time.Sleep(time.Hour) }
	},
	"after the wheel's Stop": func(w *timingwheel.TimingWheel) (afterFuncer, func()) {
		ctx, _ := w.WithTimeout(context.Background(), time.Hour)
		w.Stop()
		return ctx.(afterFuncer), func() { time.Sleep(time.Hour) }
	},
	"without a deadline of its own": func(w *timingwheel.TimingWheel) (afterFuncer, func()) {
		parent, cancelParent := w.WithTimeout(context.Background(), time.Minute)
		ctx, cancel := w.WithTimeout(parent, time.Hour)
		return ctx.(afterFuncer), func() { cancel(); cancelParent() }
	},
}

func eachEnding(t *testing.T, f func(t *testing.T, w *timingwheel.TimingWheel, ctx afterFuncer, end func())) {
	for name, make := range endings {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
				ctx, end := make(w)
				f(t, w, ctx, end)
			})
		})
	}
}

// derived returns a context of package context, which is canceled at the end of the test.
func derived(t *testing.T, ctx context.Context) context.Context {
	child, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	return child
}

// No lock is held while a function runs that was given to AfterFunc: it may use the
// context, and wait for another goroutine that does.
func TestAfterFuncIsReentrant(t *testing.T) {
	eachEnding(t, func(t *testing.T, w *timingwheel.TimingWheel, ctx afterFuncer, end func()) {
		var ran, late atomic.Int32
		stopped := ctx.AfterFunc(func() { t.Error("it was stopped") })
		var stops [3]atomic.Value
		for i := range stops {
			use := func() {
				require.False(t, stops[i].Load().(func() bool)(), "it runs")
				stopped()
				ctx.AfterFunc(func() { late.Add(1) })
				context.AfterFunc(ctx, func() { late.Add(1) })
				child, cancel := context.WithCancel(ctx)
				cancel()
				require.Error(t, child.Err())
				child, cancel = w.WithTimeout(ctx, time.Hour)
				cancel()
				require.Error(t, child.Err())
				require.Error(t, context.Cause(ctx))
				require.True(t, ended(ctx))
			}
			stops[i].Store(ctx.AfterFunc(func() {
				use()
				var all sync.WaitGroup
				all.Go(use)
				all.Wait()
				ran.Add(1)
			}))
		}
		require.True(t, stopped())
		end()
		synctest.Wait()
		require.EqualValues(t, len(stops), ran.Load())
		require.EqualValues(t, 4*len(stops), late.Load())
		require.Zero(t, w.Len())
	})
}

// A function may cancel the context, and so may a goroutine that it waits for, and that
// of another context that cancels this one.
func TestAfterFuncCancels(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		for _, start := range []int{0, 1, 2} {
			var ran atomic.Int32
			var contexts [2]context.Context
			var cancels [2]context.CancelFunc
			for i := range contexts {
				contexts[i], cancels[i] = w.WithTimeout(t.Context(), time.Minute)
				for range 3 {
					contexts[i].(afterFuncer).AfterFunc(func() {
						cancels[i]()
						cancels[1-i]()
						var all sync.WaitGroup
						all.Go(cancels[i])
						all.Go(cancels[1-i])
						all.Wait()
						ran.Add(1)
					})
				}
			}
			switch start {
			case 0:
				cancels[0]()
			case 1:
				go cancels[0]()
				cancels[1]()
			default:
				time.Sleep(time.Minute)
			}
			synctest.Wait()
			require.EqualValues(t, 6, ran.Load())
		}
	})
}

// A worker cancels before it ends, and the function waits for the worker.
func TestAfterFuncWaitsForACanceler(t *testing.T) {
	eachEnding(t, func(t *testing.T, w *timingwheel.TimingWheel, ctx afterFuncer, end func()) {
		ended := make(chan bool)
		ctx.AfterFunc(func() { <-ended })
		child := derived(t, ctx)
		end()
		synctest.Wait()
		require.Error(t, child.Err(), "it waits for no function of a user's")
		close(ended)
	})
}

// A function that ends its goroutine, and one that blocks, hold nothing up.
func TestAfterFuncThatDoesNotReturn(t *testing.T) {
	eachEnding(t, func(t *testing.T, w *timingwheel.TimingWheel, ctx afterFuncer, end func()) {
		release := make(chan bool)
		var children []context.Context
		var ran atomic.Int32
		for range 3 {
			ctx.AfterFunc(func() { runtime.Goexit() })
			ctx.AfterFunc(func() { <-release })
			ctx.AfterFunc(func() { ran.Add(1) })
			child := derived(t, ctx)
			children = append(children, child)
		}
		end()
		synctest.Wait()
		require.EqualValues(t, 3, ran.Load())
		for _, child := range children {
			require.True(t, ended(child))
		}
		close(release)
	})
}

// passing is a wrapper that passes AfterFunc on, with an Err of its own, which package
// context calls when it ends a context that it has derived.
type passing struct {
	afterFuncer
	err func() error
}

func (p passing) Err() error { return p.err() }

// No lock is held while the methods of a wrapper are called. All others end, also if one
// of these methods ends the goroutine.
func TestWrappersOfDerivedContexts(t *testing.T) {
	eachEnding(t, func(t *testing.T, w *timingwheel.TimingWheel, ctx afterFuncer, end func()) {
		var stop atomic.Value
		var asked atomic.Int32
		curious := passing{ctx, func() error {
			err := ctx.Err()
			if err != nil { // it is called because the context has ended
				asked.Add(1)
				stop.Load().(func() bool)()
				ctx.AfterFunc(func() {})()
				_, cancel := context.WithCancel(ctx)
				cancel()
				var other sync.WaitGroup
				other.Go(func() { ctx.AfterFunc(func() {})() })
				other.Wait()
			}
			return err
		}}
		leaving := passing{ctx, func() error { runtime.Goexit(); return nil }}
		var children []context.Context
		for range 2 {
			child := derived(t, ctx)
			children = append(children, child)
			derived(t, leaving)
			child = derived(t, curious)
			children = append(children, child)
			child = derived(t, ctx)
			children = append(children, child)
		}
		stop.Store(ctx.AfterFunc(func() {}))
		go end() // a method of the wrapper ends it
		synctest.Wait()
		time.Sleep(time.Hour) // or the deadline comes
		synctest.Wait()
		for _, child := range children {
			require.True(t, ended(child))
			require.Error(t, child.Err())
		}
		require.Positive(t, asked.Load())
	})
}

// Each function runs once, or its stop returned true; and when a CancelFunc returns, the
// first or not, all that package context has derived has ended.
func TestAfterFuncsAgainstCancels(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for range unlessShort(2000, 200) {
		ctx, cancel := w.WithTimeout(context.Background(), time.Hour)
		var ran, stopped atomic.Int32
		var all, running sync.WaitGroup
		start := make(chan bool)
		children := make([]context.Context, 4)
		for i := range children {
			children[i] = derived(t, ctx)
			running.Add(1)
			stop := ctx.(afterFuncer).AfterFunc(func() { ran.Add(1); running.Done() })
			all.Go(func() {
				<-start
				if stop() {
					stopped.Add(1)
					running.Done()
				}
			})
			all.Go(func() {
				<-start
				cancel()
				for _, child := range children {
					if child.Err() == nil {
						t.Error("a CancelFunc has returned, and a derived context goes on")
					}
				}
			})
		}
		close(start)
		all.Wait()
		running.Wait()
		require.EqualValues(t, len(children), ran.Load()+stopped.Load())
	}
}
