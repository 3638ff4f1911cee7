package timingwheel

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	msec   = time.Millisecond
	second = time.Second
)

// jobBubble runs f in a bubble with a wheel and a log of times since the start.
func jobBubble(t *testing.T, f func(t *testing.T, w *TimingWheel, log *timeLog), opts ...Option) {
	synctest.Test(t, func(t *testing.T) {
		w := New(opts...)
		defer w.Stop()
		f(t, w, &timeLog{start: time.Now()})
	})
}

// timeLog records the time of each note.
type timeLog struct {
	start time.Time
	mu    sync.Mutex
	times []time.Duration
}

func (l *timeLog) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = append(l.times, time.Since(l.start))
}

func (l *timeLog) take() []time.Duration {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	times := l.times
	l.times = nil
	return times
}

func mustJob(t *testing.T) func(j *Job, err error) *Job {
	return func(j *Job, err error) *Job {
		t.Helper()
		require.NoError(t, err)
		return j
	}
}

// checkStats checks what is true of Stats at any time, whatever is under way. (It calls
// require only when it fails, since it is called from other goroutines.)
func checkStats(t testing.TB, st Stats) {
	t.Helper()
	entries, cascaded := int64(0), int64(0)
	for i, l := range st.Levels {
		entries += l.Entries
		cascaded += l.Cascaded
		if l.CurrentTime > st.Now || l.Buckets < 0 || l.Entries < 0 || l.Cascaded < 0 || l.Buckets > l.Slots*st.Shards {
			t.Errorf("level %d: %+v", i, l)
		}
	}
	if st.Scheduled != st.Expired+st.Stopped+st.HandedBack+st.Pending ||
		st.Lateness.Total() != st.Expired ||
		entries > st.Pending || !st.Closed && cascaded != st.Cascaded || // a shard that is stopped has no levels

		st.Arena.Capacity-st.Arena.Free < st.Pending || st.Arena.Free < 0 ||
		st.Running < 0 {
		t.Errorf("these figures do not belong together: %+v", st)
	}
}

// checkSnapshot checks what is true of a Snapshot at any time, whatever is under way.
func checkSnapshot(t testing.TB, sn Snapshot, next int) {
	t.Helper()
	sum := sn.Due + sn.Waiting + sn.Cascading
	for i, l := range sn.Levels {
		for _, n := range l.Occupied {
			sum += int64(n)
		}
		if l.Hand < 0 || l.Hand >= l.Slots || len(l.Occupied) != l.Slots {
			t.Errorf("level %d: %d slots, hand at %d of %d", i, len(l.Occupied), l.Hand, l.Slots)
		}
	}
	if sum != sn.Pending {
		t.Errorf("%d pending, %d of them somewhere", sn.Pending, sum)
	}
	if len(sn.Next) != int(min(int64(max(0, next)), sn.Pending)) || !slices.IsSortedFunc(sn.Next, time.Time.Compare) {
		t.Errorf("%d pending, the next: %v", sn.Pending, sn.Next)
	}
}

func noop() {}

func requireDead(t *testing.T, timer *Timer) {
	t.Helper()
	require.False(t, timer.Stop())
	require.False(t, timer.Reset(0))
	require.False(t, timer.Reset(time.Hour))
	require.False(t, timer.Stop())
}

// unlessShort is how often a test does what it does, or how much of it: n times, or less
// often under -short.
func unlessShort(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}
