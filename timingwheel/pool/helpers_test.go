package pool

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

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

// waitForGarbage is waitUntil that runs the collector before each poll. One run may not be enough,
// because an interrupted goroutine keeps what is left on its stack.
func waitForGarbage(t testing.TB, done func() bool) {
	t.Helper()
	waitUntil(t, func() bool {
		runtime.GC()
		return done()
	})
}

func randomBytes(seed uint64, n int) []byte {
	data := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

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
