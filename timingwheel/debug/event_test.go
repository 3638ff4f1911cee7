package debug

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestSegments(t *testing.T) {
	for _, test := range []struct{ slots, want int }{{2, 2}, {256, 256}, {512, 256}, {1 << 16, 256}} {
		occupied := slices.Repeat([]int32{3}, test.slots)
		merged := segments(occupied)
		require.Len(t, merged, test.want)
		require.Equal(t, int64(3*test.slots/test.want), merged[0])
	}
	occupied := make([]int32, 1024)
	occupied[0], occupied[3], occupied[4], occupied[1023] = 1, 2, 4, 8
	merged := segments(occupied)
	require.Equal(t, []int64{3, 4}, merged[:2])
	require.Equal(t, int64(8), merged[255])
	require.Empty(t, segments(nil))
}

func TestMoments(t *testing.T) {
	now := time.Now()
	in := func(ms ...int) (next []time.Time) {
		for _, n := range ms {
			next = append(next, now.Add(time.Duration(n)*time.Millisecond))
		}
		return next
	}
	require.Equal(t, []moment{}, moments(nil, now))
	require.Equal(t, []moment{{-1e6, 1}, {2e6, 3}, {7e6, 1}}, moments(in(-1, 2, 2, 2, 7), now))
	require.Equal(t, []moment{{-3e6, 4}, {1e6, 1}}, moments(in(-3, -2, -2, 0, 1), now), "all that is overdue is one")
	require.Len(t, moments(in(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), now), maxMoments)

	full := in(append(slices.Repeat([]int{1}, nextDeadlines-3), 2, 2, 2)...)
	require.Equal(t, []moment{{1e6, nextDeadlines - 3}}, moments(full, now), "there may be more of the last tick")
	alone := in(slices.Repeat([]int{1}, nextDeadlines)...)
	require.Equal(t, []moment{{1e6, nextDeadlines}}, moments(alone, now))
}

func TestNoWheel(t *testing.T) {
	require.Equal(t, "retry: 1000\ndata: {\"wheels\":[],\"pools\":[],\"purgatories\":[]}\n\n", string(NewHandler().event("")))
}

// An event is small, whatever the wheel.
func TestEventSize(t *testing.T) {
	for _, test := range []struct{ levels, slots int }{{3, 512}, {4, 1 << 16}, {8, 256}, {63, 2}} {
		f := newFake()
		f.snapshot.Levels = nil
		for range test.levels {
			f.snapshot.Levels = append(f.snapshot.Levels, timingwheel.LevelOccupancy{
				LevelStats: timingwheel.LevelStats{Slots: test.slots, Interval: 1<<63 - 1, CurrentTime: 1 << 60, Tick: 1 << 60, Entries: 10e6, Cascaded: 1e9},
				Occupied:   slices.Repeat([]int32{int32(10e6 / test.slots)}, test.slots),
			})
		}
		h := NewHandler()
		h.add("a", f)
		size := len(h.event(""))
		t.Logf("%d levels of %d slots: %d bytes", test.levels, test.slots, size)
		require.Less(t, size, 20_000)
	}
}
