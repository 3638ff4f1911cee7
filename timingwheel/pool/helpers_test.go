package pool

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// manual returns a wheel of one shard whose tasks run inside Drive.
func manual(opts ...timingwheel.Option) *timingwheel.TimingWheel {
	all := []timingwheel.Option{timingwheel.WithManualDrive(), timingwheel.WithShards(1), timingwheel.WithExecutor(timingwheel.Inline())}
	return timingwheel.New(append(all, opts...)...)
}

// verify checks the invariants of the whole wheel, and returns its Stats. No call may be
// under way.
func verify(t testing.TB, w *timingwheel.TimingWheel) timingwheel.Stats {
	t.Helper()
	require.NoError(t, engine.Verify((*engine.Engine)(w)))
	return w.Stats()
}

// requireAccounts checks what is true at any moment, whatever is under way.
func requireAccounts(t testing.TB, st timingwheel.Stats) {
	t.Helper()
	require.Equal(t, st.Scheduled, st.Expired+st.Stopped+st.HandedBack+st.Pending)
}

// waitUntil waits until the condition holds, on a loaded machine too.
func waitUntil(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("waited in vain\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// waitForGarbage is waitUntil, and runs the collector before each look. One run may not be
// enough: a goroutine that was interrupted keeps what is left on its stack.
func waitForGarbage(t testing.TB, done func() bool) {
	t.Helper()
	waitUntil(t, func() bool {
		runtime.GC()
		return done()
	})
}

func mustJob(t *testing.T) func(j *timingwheel.Job, err error) *timingwheel.Job {
	return func(j *timingwheel.Job, err error) *timingwheel.Job {
		t.Helper()
		require.NoError(t, err)
		return j
	}
}

type schedulerFunc func(prev time.Time) time.Time

func (f schedulerFunc) Next(prev time.Time) time.Time { return f(prev) }

func randomBytes(seed uint64, n int) []byte {
	data := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// everySecond is a calendar of one run a second, on the second.
type everySecond struct{}

func (everySecond) Next(prev time.Time) time.Time { return prev.Truncate(time.Second).Add(time.Second) }

// byteSource is a source of random numbers that a fuzzer can steer: four bytes of data
// for each number. When the data is used up, other numbers follow: some methods of
// rand.Rand reject numbers, and would never end if all were the same.
type byteSource struct {
	data []byte
	rest rand.PCG
}

func (s *byteSource) Uint64() uint64 {
	if len(s.data) == 0 {
		return s.rest.Uint64()
	}
	var four [4]byte
	s.data = s.data[copy(four[:], s.data):]
	n := uint64(binary.LittleEndian.Uint32(four[:]))
	return n<<32 | n
}

// unlessShort is how often a test does what it does: n times, or less often under -short.
func unlessShort(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}

// atProcessors runs a test on 1, 2 and 8 processors.
func atProcessors(t *testing.T, test func(t *testing.T)) {
	for _, n := range []int{1, 2, 8} {
		t.Run("", func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			test(t)
		})
	}
}
