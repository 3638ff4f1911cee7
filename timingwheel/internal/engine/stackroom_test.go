package engine

import (
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Two lives in a row whose stacks grow are followed by some that begin with a larger stack. After
// these, one life shows whether it goes on like that.
func TestStackRoom(t *testing.T) {
	var r stackRoom
	life := func(grows bool) (measured bool) {
		if measured = r.prepare(); measured {
			r.note(grows)
		}
		return measured
	}
	for range 3 {
		require.True(t, life(true), "once does not count")
		require.True(t, life(false))
	}
	require.True(t, life(true))
	require.True(t, life(true))
	for range 3 {
		for range grown {
			require.False(t, life(true))
		}
		require.True(t, life(true))
	}
	for range grown {
		require.False(t, life(false))
	}
	require.True(t, life(false))
	require.True(t, life(true), "it begins anew")
	require.True(t, life(false))
}

// The driver finds that functions need a larger stack, whether they run on its goroutine after it
// or inline.
func TestDriverMakesRoomForFunctions(t *testing.T) {
	for name, opts := range map[string][]option{"after": nil, "inline": {withExecutor(run.Inline{})}} {
		t.Run(name, func(t *testing.T) {
			w := newTestWheel(opts...)
			defer w.Stop()
			waitUntil(t, func() bool {
				ran := make(chan bool, 1)
				w.Schedule(time.Millisecond, func() {
					needStack()
					ran <- true
				})
				<-ran
				return w.driver.stack.score.Load() > grown
			})
		})
	}
}

// After growStack, a function has room for 4 KB more than a fresh goroutine's 2 KB.
func TestGrowStack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection shrinks stacks
	moved := make(chan bool)
	go func() {
		var here byte
		growStack()
		before := position(&here)
		needFourKB()
		moved <- position(&here) != before
	}()
	require.False(t, <-moved)
}

//go:noinline
func needFourKB() {
	var frame [4 << 10]byte
	for i := range frame {
		frame[i]++
	}
}

// needStack needs more than the runtime begins with.
//
//go:noinline
func needStack() {
	var frame [64 << 10]byte
	for i := range frame {
		frame[i]++
	}
}
