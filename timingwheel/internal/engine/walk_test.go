package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/bucket"
)

// A clock never goes back: a bucket may be flushed after one that expired later.
func TestClockDoesNotGoBack(t *testing.T) {
	var arena bucket.Arena
	w := newWheel(nil, &arena, 0, 1, 0, 0)
	w.makeOverflow()
	for _, to := range []int64{3, 2, 0} {
		w.advance(to)
		require.EqualValues(t, 3, w.currentTime)
		require.EqualValues(t, 2, w.overflow.currentTime)
	}
}

// The structure keeps its invariants after any calls, in any order, and Stats and Snapshot report
// what a walk over it finds.
func TestStatsAndSnapshotAreWhatAWalkFinds(t *testing.T) {
	for range unlessShort(30, 6) {
		r := newRandForTest(t)
		w := virtual(withWheelSize(2<<r.IntN(5)), withTick(time.Microsecond<<r.IntN(20)), withMaxPending(1<<30))
		delay := func() time.Duration { return time.Duration(r.Int64N(1<<(10+r.IntN(46)))) - 100 }
		var timers []*timer
		for range 100 {
			switch op := r.IntN(10); {
			case op < 4 || len(timers) == 0:
				for range 1 + r.IntN(20) {
					timers = append(timers, w.AfterFunc(delay(), noop))
				}
			case op < 5:
				for range 1 + r.IntN(50) {
					timers[r.IntN(len(timers))].Stop()
				}
			case op < 7:
				timers[r.IntN(len(timers))].Reset(delay())
			case op < 8:
				addOwn(&w.shards[0], delay(), noop)
			default:
				w.Advance(delay().Abs() >> r.IntN(20))
			}
			w.verify(t)
			w.verifyStats(t)
			w.verifySnapshot(t, r.IntN(20))
		}
		w.Stop()
		w.verify(t)
	}
}
