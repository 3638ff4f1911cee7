package stack

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two lives in a row whose stacks grow are followed by some that begin with a larger stack. After
// these, one life shows whether it goes on like that.
func TestHabit(t *testing.T) {
	var h Habit
	life := func(grows bool) (measured bool) {
		if measured = h.Begin(); measured {
			h.End(grows)
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

// After Grow, a function has room for 4 KB more than a fresh goroutine's 2 KB. So it has after a
// Begin that need not measure.
func TestGrow(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection shrinks stacks
	var h Habit
	h.score.Store(grown + 1)
	for name, grow := range map[string]func(){
		"Grow":  Grow,
		"Begin": func() { h.Begin() },
	} {
		moved := make(chan bool)
		go func() {
			var here byte
			grow()
			before := Position(&here)
			needFourKB()
			moved <- Position(&here) != before
		}()
		require.False(t, <-moved, name)
	}
}

//go:noinline
func needFourKB() {
	var frame [4 << 10]byte
	for i := range frame {
		frame[i]++
	}
}
