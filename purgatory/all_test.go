package purgatory

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// ways are the calls that end many operations at once.
var ways = map[string]func(t *testing.T, w *timingwheel.TimingWheel, n int, done func()) (end func()){
	"Notify": func(t *testing.T, w *timingwheel.TimingWheel, n int, done func()) func() {
		p := parkMany(t, w, n, done)
		return func() { p.Notify(1) }
	},
	"CancelKey": func(t *testing.T, w *timingwheel.TimingWheel, n int, done func()) func() {
		p := parkMany(t, w, n, done)
		return func() { p.CancelKey(1) }
	},
	"Close": func(t *testing.T, w *timingwheel.TimingWheel, n int, done func()) func() {
		return parkMany(t, w, n, done).Close
	},
	"Advance": func(t *testing.T, w *timingwheel.TimingWheel, n int, done func()) func() {
		th := NewThreshold[int](w)
		for range n {
			_, err := th.Park(1, time.Hour, func(Outcome) { done() })
			require.NoError(t, err)
		}
		return func() { th.Advance(1) }
	},
}

func parkMany(t *testing.T, w *timingwheel.TimingWheel, n int, done func()) *Purgatory[int] {
	p := New[int](w)
	for range n {
		_, err := p.Park(time.Hour, nil, func(Outcome) { done() }, 1)
		require.NoError(t, err)
	}
	return p
}

// ending calls end on a goroutine that it may end, and returns what it panics with.
func ending(end func()) (panicked any) {
	ended := make(chan any)
	go func() {
		defer func() { ended <- recover() }()
		end()
	}()
	return <-ended
}

// A test's done may fail (t.FailNow) and its cleanup panic then: the others are ended all
// the same.
func TestGoexitWithPanic(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{10, 3 * batch} {
				called := 0
				end := way(t, w, n, func() {
					called++
					defer panic(called)
					runtime.Goexit()
				})
				require.Equal(t, 1, ending(end), "the first panic goes on")
				require.Equal(t, n, called)
				require.Zero(t, w.Len())
			}
		})
	}
}

// However many end the goroutine, no stack gets deep.
func TestManyGoexits(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			const n, deep = 5000, 100
			called, tooDeep := 0, 0
			end := way(t, w, n, func() {
				called++
				var pc [1]uintptr
				if runtime.Callers(deep, pc[:]) > 0 {
					tooDeep++
				}
				runtime.Goexit()
			})
			within(t, func() { require.Nil(t, ending(end)) })
			require.Equal(t, n, called)
			require.Zero(t, tooDeep)
			require.Zero(t, w.Len())
		})
	}
}

// A chain of operations end one another, each beside one that panics. No link takes a goroutine
// that waits for the rest of the chain.
func TestChainOfPanics(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	// While the collector frees the stacks of goroutines that have ended, they count again.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	goroutines, most, ended := runtime.NumGoroutine(), 0, 0
	const n = 20_000
	for i := range n {
		_, err := p.Park(time.Hour, nil, func(Outcome) { panic(fmt.Sprint("oops ", i)) }, i)
		require.NoError(t, err)
		_, err = p.Park(time.Hour, nil, func(Outcome) {
			ended++
			most = max(most, runtime.NumGoroutine())
			p.Notify(i + 1)
		}, i)
		require.NoError(t, err)
	}
	within(t, func() { require.Equal(t, "oops 0", ending(func() { p.Notify(0) })) })
	require.Equal(t, n, ended)
	require.Less(t, most-goroutines, 2*(stripes*freeCalls+manyApart))
	require.Zero(t, p.verify(t).Pending)
}
