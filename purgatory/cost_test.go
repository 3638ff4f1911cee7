package purgatory

import (
	"math/bits"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestAllocations(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p := New[int](w)
	_, err := p.Park(time.Hour, nil, nil, 1) // keeps the arena's chunk and a map in being
	require.NoError(t, err)
	key := 1
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		key++
		p.Park(time.Hour, nil, nil, key)
		p.Notify(key)
	}), 2.0, "the operation, and the wheel's")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		key++
		o, _ := p.Park(time.Hour, never, nil, key, key+1, key+2)
		o.Cancel()
	}), 5.0, "and its further links, and what finds keys that are given twice")
	require.Zero(t, testing.AllocsPerRun(1000, func() { p.Wait(t.Context(), time.Hour, always, 1) }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { p.Notify(-1) }), "nothing there")
	for range batch {
		_, err := p.Park(time.Hour, never, nil, -2)
		require.NoError(t, err)
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { p.Notify(-2) }), "a visit")
	require.LessOrEqual(t, int(unsafe.Sizeof(Op[int]{})), 96)
	require.LessOrEqual(t, int(unsafe.Sizeof(Op[string]{})), 112)
}

// A million parked: no goroutine for any, and few bytes.
func TestMillionParked(t *testing.T) {
	w := timingwheel.New(timingwheel.WithShards(1)) // each keeps up to 120 KB of its own once it was used
	defer w.Stop()
	w.AfterFunc(time.Hour, func() {}) // the driver is there
	before, goroutines := heap(), runtime.NumGoroutine()
	noMore := func() bool { return runtime.NumGoroutine() <= goroutines+1 } // Eventually has one, which looks
	p := New[int](w)
	for i := range million {
		if _, err := p.Park(time.Hour, nil, nil, i); err != nil {
			t.Fatal(err)
		}
	}
	require.Eventually(t, noMore, 30*time.Second, time.Millisecond)
	bytes := (heap() - before) / million
	t.Logf("%d bytes for each of %d operations with a key of its own", bytes, million)
	require.LessOrEqual(t, bytes, int64(256))
	st := p.Stats()
	require.EqualValues(t, million, st.Pending)
	require.EqualValues(t, million, st.Keys)

	ended := 0
	for i := range million / 2 {
		ended += p.Notify(i)
	}
	require.Equal(t, million/2, ended)
	p.Close()
	require.Zero(t, p.verify(t).Pending)
	require.Equal(t, 1, w.Len())
	require.Eventually(t, func() bool { return heap()-before < million+120<<10 }, 30*time.Second, time.Millisecond,
		"what has ended is kept: a byte for each, or more")
	require.Eventually(t, noMore, 30*time.Second, time.Millisecond)
	runtime.KeepAlive(p)
}

// The room of keys follows their number, also when some are left in each stripe.
func TestKeysGiveTheirRoomBack(t *testing.T) {
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	p := New[int](w)
	const keys, left = 300_000, 500
	before := heap()
	for i := range keys {
		p.Park(time.Hour, nil, nil, i)
	}
	ended := 0
	for i := range keys - left { // those that stay share few chunks of the wheel's arena
		ended += p.Notify(i)
	}
	require.Equal(t, keys-left, ended)
	require.EqualValues(t, left, p.verify(t).Keys)
	require.Eventually(t, func() bool { return heap()-before < keys }, time.Minute, time.Millisecond,
		"a byte or more for each key, though most are gone")
	runtime.KeepAlive(p)
}

func TestNewIsLight(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	const n = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		New[int](w)
	}
	runtime.ReadMemStats(&after)
	bytes := (after.TotalAlloc - before.TotalAlloc) / n
	t.Log(bytes, "bytes")
	require.Less(t, bytes, uint64(20<<10))
	if bits.UintSize == 64 {
		require.Zero(t, unsafe.Sizeof(stripe[int]{})%64, "stripes begin on a cache line each")
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A rise past one waiter of 100,000.
func BenchmarkThreshold(b *testing.B) {
	w := timingwheel.New()
	defer w.Stop()
	t := NewThreshold[int](w)
	const waiters = 100_000
	for i := range waiters {
		t.Park(i+1, time.Hour, nil)
	}
	for v := 1; b.Loop(); v++ {
		t.Park(waiters+v, time.Hour, nil) // measured, too
		if t.Advance(v) != 1 {
			b.Fatal("not one")
		}
	}
}
