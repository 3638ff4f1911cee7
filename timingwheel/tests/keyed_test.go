package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/park"

	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/internal/parking"
)

func TestKeyed(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		k := timingwheel.NewKeyed[string](w)
		schedule := func(key string, d time.Duration) bool {
			replaced, err := k.Schedule(key, d, log.note)
			require.NoError(t, err)
			return replaced
		}
		require.False(t, schedule("a", 10*msec))
		require.False(t, schedule("b", 20*msec))
		require.True(t, schedule("a", 30*time.Microsecond), "a long delay by a short one")
		at, ok := k.Deadline("a")
		require.True(t, ok)
		require.Equal(t, log.start.Add(msec), at, "rounded up to a tick")
		require.Equal(t, 2, k.Len())
		require.Equal(t, 2, w.Len())
		time.Sleep(15 * msec)
		require.Equal(t, []time.Duration{msec}, log.take())
		_, ok = k.Deadline("a")
		require.False(t, ok, "it has fired")
		require.False(t, k.Cancel("a"))
		require.False(t, k.Reset("a", msec))

		require.True(t, k.Reset("b", 20*msec))
		at, _ = k.Deadline("b")
		require.Equal(t, log.start.Add(35*msec), at)
		require.True(t, schedule("b", time.Hour), "a short delay by a long one")
		require.True(t, k.Reset("b", 10*msec))
		time.Sleep(15 * msec)
		require.Equal(t, []time.Duration{25 * msec}, log.take())

		require.False(t, schedule("c", msec))
		require.True(t, k.Cancel("c"))
		require.False(t, k.Cancel("c"))
		require.Zero(t, k.Len())
		require.Zero(t, w.Len())
		time.Sleep(second)
		require.Empty(t, log.take())
	})
}

func TestKeyedFunctionMaySchedulesItsOwnKey(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		k := timingwheel.NewKeyed[int](w)
		var f func()
		f = func() {
			log.note()
			require.Zero(t, k.Len(), "the key disappears when the function starts")
			require.False(t, k.Cancel(1))
			if len(log.times) < 3 {
				replaced, err := k.Schedule(1, msec, f)
				require.NoError(t, err)
				require.False(t, replaced)
			}
		}
		k.Schedule(1, msec, f)
		time.Sleep(10 * msec)
		require.Equal(t, []time.Duration{msec, 2 * msec, 3 * msec}, log.take())
	})
}

// Schedule, Cancel and Reset win against a task that the executor has in its queue.
func TestKeyedWinsAgainstTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue []func()
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
		defer w.Stop()
		k := timingwheel.NewKeyed[string](w)
		ran := map[string]int{}
		for _, key := range []string{"left", "canceled", "replaced", "reset"} {
			k.Schedule(key, 0, func() { ran[key]++ })
		}
		require.Equal(t, 4, w.Drive(0))
		require.Equal(t, 4, k.Len(), "none has started")
		require.True(t, k.Cancel("canceled"))
		replaced, err := k.Schedule("replaced", msec, func() { ran["replacement"]++ })
		require.NoError(t, err)
		require.True(t, replaced)
		require.True(t, k.Reset("reset", msec))
		require.Equal(t, 3, k.Len())
		for _, task := range queue {
			task()
		}
		require.Equal(t, map[string]int{"left": 1}, ran)
		queue = nil
		time.Sleep(msec)
		require.Equal(t, 2, w.Drive(0))
		for _, task := range queue {
			task()
		}
		require.Equal(t, map[string]int{"left": 1, "replacement": 1, "reset": 1}, ran)
		require.Zero(t, k.Len())
	})
}

func TestKeyedOnAStoppedWheel(t *testing.T) {
	var queue []func()
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
	k := timingwheel.NewKeyed[int](w)
	ran := map[int]bool{}
	for key := range 100 {
		k.Schedule(key, time.Hour, func() { ran[key] = true })
	}
	k.Schedule(100, 0, func() { ran[100] = true })
	k.Schedule(101, 0, func() { ran[101] = true })
	require.Equal(t, 2, w.Drive(0))
	pending := w.Stop()
	require.Len(t, pending, 100)
	require.False(t, k.Cancel(1), "it was handed back, and may be run by who got it")
	require.False(t, k.Reset(2, 1))
	_, ok := k.Deadline(3)
	require.False(t, ok)
	require.Equal(t, 2, k.Len(), "those that wait in the executor's queue")
	_, err := k.Schedule(1, 1, func() {})
	require.Equal(t, timingwheel.ErrStopped, err)
	_, err = k.Schedule(100, 1, func() {})
	require.Equal(t, timingwheel.ErrStopped, err)
	require.False(t, k.Reset(100, 1))
	require.True(t, k.Cancel(101))
	for _, task := range queue {
		task()
	}
	require.Equal(t, map[int]bool{100: true}, ran)
	for _, p := range pending {
		require.False(t, p.Deadline.IsZero())
		p.Func()
	}
	require.Len(t, ran, 101, "the functions themselves are handed back")
	require.Zero(t, k.Len())
}

// stopCall is a parked operation whose Stop calls f, with the shard's lock held.
type stopCall func()

func (f stopCall) Expire(parking.Held) (leave, done func()) { return nil, nil }

func (f stopCall) Stop(parking.Held) (rest func(), by parking.Executor) {
	f()
	return nil, nil
}

// A call that finds its key's function on the wheel, and is slower than Stop at its shard.
func TestKeyedIsSlowerThanStop(t *testing.T) {
	for name, call := range map[string]func(k *timingwheel.Keyed[int]) bool{
		"Cancel": func(k *timingwheel.Keyed[int]) bool { return k.Cancel(1) },
		"Reset":  func(k *timingwheel.Keyed[int]) bool { return k.Reset(1, time.Minute) },
		"Schedule": func(k *timingwheel.Keyed[int]) bool {
			replaced, err := k.Schedule(1, time.Minute, mustNotRun)
			return replaced || err != timingwheel.ErrStopped
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(1))
			k, done := timingwheel.NewKeyed[int](w), make(chan bool)
			_, err := park.On(w, time.Hour, stopCall(func() { // Stop comes to it before the key
				go func() { done <- call(k) }()
				waitForCallers(t, 1)
			}))
			require.NoError(t, err)
			k.Schedule(1, time.Hour, noop)
			require.Len(t, w.Stop(), 1)
			require.False(t, <-done)
			require.Zero(t, k.Len())
		})
	}
}

// A key that is replaced keeps its place under the limit, and its entry.
func TestKeyedReplacesAtTheLimit(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithMaxPending(1))
	k := timingwheel.NewKeyed[int](w)
	_, err := k.Schedule(1, time.Hour, mustNotRun)
	require.NoError(t, err)
	replaced, err := k.Schedule(1, time.Minute, noop)
	require.NoError(t, err)
	require.True(t, replaced)
	_, err = k.Schedule(2, time.Minute, noop)
	require.Equal(t, timingwheel.ErrTooManyPending, err)
	require.Equal(t, 1, k.Len())
	require.Len(t, w.Stop(), 1)
}

func TestKeyThatDoesNotEqualItself(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	k := timingwheel.NewKeyed[float64](w)
	require.PanicsWithValue(t, "timingwheel: Keyed.Schedule: the key does not equal itself",
		func() { k.Schedule(math.NaN(), 0, func() {}) })
	require.False(t, k.Cancel(math.NaN()))
	any := timingwheel.NewKeyed[any](w)
	require.Panics(t, func() { any.Schedule([]int{}, 0, func() {}) })
	_, err := any.Schedule("others go on", time.Hour, func() {})
	require.NoError(t, err)
}

// Nothing of a key is kept when its function has started, or will not.
func TestKeyedRetainsNothing(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	k := timingwheel.NewKeyed[string](w)
	before := heapInUse()
	const size = 16 << 10
	keys := unlessShort(5000, 1000)
	for i := range keys {
		big := make([]byte, size)
		key := string(big[:200]) + string(rune(i))
		d := time.Hour
		if i%3 == 0 {
			d = 0
		}
		k.Schedule(key, d, func() { big[0]++ })
		switch i % 3 {
		case 1:
			k.Cancel(key)
		case 2:
			k.Schedule(key, time.Hour, func() {})
			k.Reset(key, 0)
		}
	}
	waitFor(t, func() bool { return k.Len() == 0 && w.Len() == 0 })
	waitFor(t, func() bool { return heapInUse() < before+uint64(keys*size/20) })

	for i := range 100_000 { // nor the map in which they all were
		k.Schedule(strconv.Itoa(i), time.Hour, func() {})
	}
	for i := range 100_000 {
		k.Cancel(strconv.Itoa(i))
	}
	waitFor(t, func() bool { return heapInUse() < before+1<<20 })

	for i := range 100 { // nor, by a wheel that is stopped, what was handed back
		big := make([]byte, size)
		k.Schedule(strconv.Itoa(i), time.Hour, func() { big[0]++ })
	}
	w.Stop()
	waitFor(t, func() bool { return heapInUse() < before+50*size })
	runtime.KeepAlive(k)
}

// Once Stop has handed the functions back, a Keyed that nobody calls any more keeps nothing of its
// keys; in a stripe of which one key waits in the executor's queue, once that has started.
func TestKeyedForgetsAfterStop(t *testing.T) {
	const keys = 50_000
	var queue []func()
	before := heapInUse()
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
	k := timingwheel.NewKeyed[int](w)
	for key := range keys {
		k.Schedule(key, time.Hour, noop)
	}
	for key := range 32 {
		k.Schedule(-1-key, 0, noop)
	}
	full := heapInUse() - before
	require.Equal(t, 32, w.Drive(0))
	require.Len(t, w.Stop(), keys)
	for _, task := range queue {
		task()
	}
	queue = nil
	waitFor(t, func() bool { return heapInUse() < before+full/10 })
	require.Zero(t, k.Len())
}

// The executor's queue does not keep a function that was canceled or replaced while it waited
// there.
func TestKeyedRetainsNothingInTheQueue(t *testing.T) {
	pool := newPool(1, 10, fullWait)
	w := timingwheel.New(timingwheel.WithExecutor(pool))
	release := busy(pool, 1)
	k := timingwheel.NewKeyed[int](w)
	var functions []weak.Pointer[[1 << 16]byte]
	for key := range 2 {
		big := new([1 << 16]byte)
		functions = append(functions, weak.Make(big))
		_, err := k.Schedule(key, 0, func() { big[0]++ })
		require.NoError(t, err)
	}
	waitFor(t, func() bool { return w.Stats().Running == 2 })
	require.True(t, k.Cancel(0))
	replaced, err := k.Schedule(1, time.Hour, func() {})
	require.NoError(t, err)
	require.True(t, replaced)
	waitForGarbage(t, func() bool { return functions[0].Value() == nil && functions[1].Value() == nil })
	require.Len(t, w.Stop(), 1)
	release()
	pool.Close()
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Under any race, every function that was scheduled runs once, or is replaced or canceled by
// exactly one call that returned so, or is handed back.
func TestKeyedAccounts(t *testing.T) {
	for round := range 20 {
		w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(2<<(round%8)))
		k := timingwheel.NewKeyed[int](w)
		var scheduled, ran, dropped, handedBack atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 2000 {
					key, d := rand.IntN(4), time.Duration(rand.Int64N(int64(100*time.Microsecond)))
					if rand.IntN(2) == 0 {
						d = time.Hour
					}
					switch rand.IntN(4) {
					case 0:
						if k.Cancel(key) {
							dropped.Add(1)
						}
					case 1:
						k.Reset(key, d)
					default:
						var once atomic.Bool
						replaced, err := k.Schedule(key, d, func() {
							if once.Swap(true) {
								t.Error("ran twice")
							}
							ran.Add(1)
						})
						if err == nil {
							scheduled.Add(1)
						}
						if replaced {
							dropped.Add(1)
						}
					}
				}
			})
		}
		if round%2 == 0 {
			for scheduled.Load() < int64(round*200) {
				runtime.Gosched()
			}
			handedBack.Add(int64(len(w.Stop())))
		}
		wg.Wait()
		for key := range 4 {
			if k.Cancel(key) {
				dropped.Add(1)
			}
		}
		waitFor(t, func() bool {
			return scheduled.Load() <= ran.Load()+dropped.Load()+handedBack.Load()
		})
		require.Equal(t, scheduled.Load(), ran.Load()+dropped.Load()+handedBack.Load())
		require.Zero(t, k.Len())
		require.Zero(t, w.Len())
		w.Stop()
	}
}

// After Stop an operation costs as much as before, however many keys wait in the executor's
// queue, and so does the start of each of them.
func TestKeyedAfterStopIsNotQuadratic(t *testing.T) {
	const keys = 60_000 // some thousand in each stripe
	work := func(stop bool) time.Duration {
		var queue []func()
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
		defer w.Stop()
		k := timingwheel.NewKeyed[int](w)
		for key := range keys {
			k.Schedule(key, 0, noop)
		}
		k.Schedule(-1, time.Hour, noop)
		require.Equal(t, keys, w.Drive(0))
		if stop {
			require.Len(t, w.Stop(), 1)
		}
		start := time.Now()
		for key := range keys {
			if key%2 == 0 {
				k.Deadline(key)
				k.Cancel(key + 1)
			}
		}
		for _, task := range queue {
			task()
		}
		took := time.Since(start)
		k.Cancel(-1)
		require.Zero(t, k.Len())
		return took
	}
	atLeastOnce(t, func() bool { return work(true) < 20*work(false)+20*time.Millisecond })
}

// Of very many keys a thousand are left. The memory held shrinks with them.
func TestKeyedGivesMemoryBack(t *testing.T) {
	const most = 4
	keys := unlessShort(200_000, 50_000)
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	fill := func(from, to int) *timingwheel.Keyed[int] {
		k := timingwheel.NewKeyed[int](w)
		for key := from; key < to; key++ {
			k.Schedule(key, time.Hour, noop)
		}
		return k
	}
	empty := heapInUse()
	few := fill(0, 1000)
	forFew := heapInUse() - empty
	before := heapInUse()
	k := fill(0, keys)
	for key := 1000; key < keys; key++ {
		k.Cancel(key)
	}
	for range 20_000 { // mixed traffic
		key := -1 - rand.IntN(1000)
		k.Schedule(key, time.Hour, noop)
		k.Cancel(key)
	}
	require.Equal(t, 1000, k.Len())
	waitFor(t, func() bool { return heapInUse() < before+most*forFew })
	runtime.KeepAlive(few)
	runtime.KeepAlive(k)
}
