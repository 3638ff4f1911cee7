package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Functions cancel and reset one another while their bucket cascades, and one of them stops the
// wheel. Whatever the moment, a function that was canceled does not run, and each of the
// others runs once or is handed back once.
func TestFunctionsCancelOneAnotherInACascade(t *testing.T) {
	for range unlessShort(60, 10) {
		r := newRandForTest(t)
		w := virtual(withWheelSize(2<<r.IntN(3)), withTick(time.Millisecond))
		n := 1 + r.IntN(4*SliceLen)
		end := r.IntN(2 * n) // so many functions run before the wheel is stopped, or else all
		ended := make([]bool, n)
		all := make([]timeout, n)
		ran, canceled, stopped := 0, 0, false
		var handedBack []pending
		at := func() time.Duration { return time.Duration(1+r.IntN(3)) * 50 * time.Millisecond }
		cancelSome := func() {
			for range r.IntN(50) {
				if i := r.IntN(n); all[i].Cancel() {
					require.False(t, ended[i], "canceled after its end")
					ended[i], canceled = true, canceled+1
				}
			}
		}
		for i := range all {
			all[i], _ = w.Schedule(at(), func() {
				require.False(t, ended[i], "it runs after its end")
				ended[i] = true
				if ran++; ran > end && !stopped {
					handedBack, stopped = w.Stop(), true
				}
				if r.IntN(20) == 0 {
					cancelSome()
				}
				all[r.IntN(n)].Reset(at())
			})
		}
		for w.Len() > 0 {
			cancelSome()
			w.verify(t)
			require.Equal(t, n-ran-canceled, w.Len())
			w.Advance(time.Duration(r.IntN(30)) * time.Millisecond)
			w.verify(t)
		}
		fired := ran
		for _, p := range handedBack {
			p.Func()
		}
		require.NotContains(t, ended, false)
		require.Equal(t, n, ran+canceled)
		st := w.Stats()
		require.EqualValues(t, fired, st.Expired)
		require.EqualValues(t, canceled, st.Stopped)
		require.EqualValues(t, len(handedBack), st.HandedBack)
		w.Stop()
	}
}
