package purgatory

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

//go:noinline
func below(frames int, f func()) {
	if frames > 0 {
		below(frames-1, f)
		return
	}
	f()
}

// A waiter depends on no done of a user's that blocks, however many do, and however deep the stacks.
func TestWaitBesideDonesThatBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		p := New[int](w)
		level := NewThreshold[int](w)
		release := make(chan struct{})
		defer func() { close(release); synctest.Wait() }()
		block := func(Outcome) { <-release }
		for range freeCalls + 2 {
			o, err := p.Park(time.Hour, nil, block, 1)
			require.NoError(t, err)
			cancel, err := level.Park(7, time.Hour, block)
			require.NoError(t, err)
			go below(deepStack, func() { o.Cancel() })
			go below(deepStack, func() { cancel() })
		}
		synctest.Wait()

		ended := 0
		go func() {
			require.NoError(t, p.Wait(t.Context(), time.Hour, nil, 1))
			require.NoError(t, level.Await(t.Context(), 1, time.Hour))
			ended++
		}()
		synctest.Wait()
		below(deepStack, func() { require.Equal(t, 1, p.Notify(1)) })
		synctest.Wait()
		below(deepStack, func() { require.Equal(t, 1, level.Advance(1)) })
		synctest.Wait()
		require.Equal(t, 1, ended)
	})
}
