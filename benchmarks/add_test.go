package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// BenchmarkAddCancel starts a timer and cancels the same timer at once, beside others that
// are pending, from one goroutine. Delays are uniform from a minute to a day. The entry is
// still in the processor's cache. BenchmarkCancelRandom shows what a cancel costs where it
// is not.
func BenchmarkAddCancel(b *testing.B) {
	eachSize(b, []int{0, 10_000, 1_000_000}, func(b *testing.B, n int) {
		compare(b, pick(setup{pending: n}, plain), func(b *testing.B, t timers) {
			fill(t, n)
			r := random(n)
			loop(b, func() {
				t.add(n, farOff(r), noop)
				t.cancel(n)
			})
		})
	})
}

// BenchmarkCancelRandom cancels one of the pending timers at random and starts another in
// its place, from one goroutine. That is the end of a connection or of a session. Each
// cancel meets memory that is not in the processor's cache. The handles lie in one slice;
// those of AfterFunc are pointers to objects of their own, and so are those of Pointer.
//
// That pointer is the floor of AfterFunc. A cancel fetches one cache line more, and the object is
// garbage. Pointer took 1.46 of Schedule's processor time among a million (medians of seven
// rounds on a busy machine), and about as much as package time. AfterFunc returns a pointer, as
// package time does, and its object holds more than a Timeout.
func BenchmarkCancelRandom(b *testing.B) {
	eachSize(b, []int{100_000, 1_000_000}, func(b *testing.B, n int) {
		compare(b, pick(setup{pending: n}, plain+" wheel.Schedule+Pointer wheel.Keyed mutex+map+AfterFunc"), func(b *testing.B, t timers) {
			fill(t, n)
			r := random(n)
			loop(b, func() {
				i := r.IntN(n)
				t.cancel(i)
				t.add(i, farOff(r), noop)
			})
		})
	})
}

// BenchmarkCancelTail is BenchmarkCancelRandom, and notes how long each single cancel and each
// add takes, with a reading of the clock: some 50 ns, the same for all. A wheel unlinks some
// canceled timers together, so that most cancels are short and some are long.
func BenchmarkCancelTail(b *testing.B) {
	n, ops := size(1_000_000, 100), size(200_000, 100)
	compare(b, pick(setup{pending: n}, ours+" RussellLuo heap"), func(b *testing.B, t timers) {
		once(b, func() {
			fill(t, n)
			measure.Settle()
			tail(b, t, n, ops)
		})
	})
}

func tail(b *testing.B, t timers, n, ops int) {
	cancels, adds := make([]time.Duration, ops), make([]time.Duration, ops)
	r := random(n)
	for k := range ops {
		i, d := r.IntN(n), farOff(r)
		begin := time.Now()
		t.cancel(i)
		canceled := time.Now()
		t.add(i, d, noop)
		cancels[k], adds[k] = canceled.Sub(begin), time.Since(canceled)
	}
	for prefix, took := range map[string][]time.Duration{"cancel-": cancels, "add-": adds} {
		slices.Sort(took)
		for unit, p := range map[string]float64{"p50-ns": 50, "p99-ns": 99} {
			b.ReportMetric(float64(percentile(took, p)), prefix+unit)
		}
	}
}

// BenchmarkCancelParallel is BenchmarkCancelRandom on 2 and 8 goroutines, among a million. Each
// goroutine has a part of the timers, and after some thousand operations the part of the next.
// So it cancels also timers that others have started, on another processor. The time is the
// wall's, divided by the operations of all goroutines.
//
// Most of the time goes into the cache misses of random access. A cancel of another processor's
// timer costs 50 to 60 ns more, among many timers and among few: so it is the shard that travels
// between the processors, its lock and its fields, and not the timers. The processor time of an
// operation, on a busy machine (medians of 150 turns; nothing was garbage), was
//
//	                                                20,000    a million
//	one goroutine                                   183 ns    534 ns
//	two, each cancels timers of its own shard       191 ns    572 ns
//	two, each cancels timers of either, at random   248 ns    631 ns
//	two, each cancels timers of the other's shard   252 ns    621 ns
//
// Two ways were tried among a million, by turns with this one, and brought nothing: the fields that
// an add and a cancel write in four cache lines of the shard instead of nine (0.99 of the processor
// time, the median of 14 pairs), and four shards for each processor (1.02, 6 pairs). To hand the
// cancels of another processor's timers over in batches needs a state of each timer outside of the
// lock, since Cancel says at once whether it was in time.
func BenchmarkCancelParallel(b *testing.B) {
	n := size(1_000_000, 100)
	compare(b, pick(setup{pending: n}, ours+" heap"), func(b *testing.B, t timers) {
		fill(t, n)
		for _, goroutines := range []int{2, 8} {
			b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) { cancelParallel(b, t, n, goroutines) })
		}
	})
}

func cancelParallel(b *testing.B, t timers, n, goroutines int) {
	measure.Settle()
	before := measure.Now()
	b.ResetTimer()
	for done, turn := 0, 0; done < b.N; turn++ {
		lot := min(1<<15, b.N-done)
		done += lot
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				part := (g + turn) % goroutines
				from, to, r := n*part/goroutines, n*(part+1)/goroutines, random(turn*goroutines+g)
				for range lot*(g+1)/goroutines - lot*g/goroutines {
					i := from + r.IntN(to-from)
					t.cancel(i)
					t.add(i, farOff(r), noop)
				}
			})
		}
		all.Wait()
	}
	reportCPU(b, before, measure.Now(), b.N, "op")
}

// BenchmarkReset pushes one timer of a minute back to a minute from now, chosen at random.
// That is traffic on a connection with an idle timeout. A wheel's Timer takes a lock at its
// first Reset, and mostly none after that: so each timer is pushed back once before, and
// the unit first-cpu-ns/op has that. A subject without a Reset cancels and adds.
func BenchmarkReset(b *testing.B) {
	eachSize(b, []int{10, 100_000, 1_000_000}, func(b *testing.B, n int) {
		compare(b, pick(setup{pending: 10 * n}, plain), func(b *testing.B, t timers) {
			t.keep(n)
			for i := range n {
				t.add(i, time.Minute, noop)
			}
			r := random(n)
			order := r.Perm(n)
			measure.Settle()
			before := measure.Now()
			for _, i := range order {
				t.reset(i, time.Minute, noop)
			}
			first := measure.Now().CPU - before.CPU
			loop(b, func() { t.reset(r.IntN(n), time.Minute, noop) })
			b.ReportMetric(float64(first)/float64(n), "first-cpu-ns/op")
		})
	})
}

// BenchmarkParallel starts timers and cancels them at once on all processors, with 1, 8 and
// 64 goroutines for each of GOMAXPROCS, beside 100,000 that are pending. The time is the
// wall's, divided by the operations of all goroutines. So on two processors, half of the
// time on one is perfect. Use -cpu to set GOMAXPROCS.
func BenchmarkParallel(b *testing.B) {
	n := size(100_000, 100)
	compare(b, pick(setup{pending: n}, plain), func(b *testing.B, t timers) {
		fill(t, n)
		t.keep(64 * 64 * 16)
		for _, goroutines := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
				parallel(b, goroutines, func(g int) func() { return addCancels(t, g) })
			})
		}
	})
}

// addCancels returns what goroutine g of a crowd does again and again. Its timer's handle is
// in a cache line of its own.
func addCancels(t timers, g int) func() {
	r := random(g)
	return func() {
		t.add(g*16, farOff(r), noop)
		t.cancel(g * 16)
	}
}

// BenchmarkResetParallel pushes back 100,000 timers of a minute that one goroutine has
// made, as an accept loop does. Each goroutine resets its own part of them at random.
func BenchmarkResetParallel(b *testing.B) {
	n := size(100_000, 1000)
	compare(b, pick(setup{pending: n}, ours+" RussellLuo heap"), func(b *testing.B, t timers) {
		t.keep(n)
		for i := range n {
			t.add(i, time.Minute, noop)
		}
		for _, goroutines := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
				all := goroutines * runtime.GOMAXPROCS(0)
				parallel(b, goroutines, func(g int) func() {
					from, to, r := n*g/all, n*(g+1)/all, random(g)
					return func() { t.reset(from+r.IntN(to-from), time.Minute, noop) }
				})
			})
		}
	})
}

// BenchmarkMemory starts timers, weighs them, collects garbage, and stops them. Bytes are
// those of live objects. A collection is the shortest of three, on an otherwise idle process:
// most of it is work beside the program, not a pause. With hold=function all timers share
// one function, and no handle is kept. With hold=closure each timer has a closure that
// captures an integer. With hold=handle they share one function, and the handles are kept in
// a slice, which is weighed: a Timeout is a value in it, and a Timer an object of its own.
// Stop ends all: by the wheel's Stop, or for package time one by one.
func BenchmarkMemory(b *testing.B) {
	eachSize(b, []int{1_000_000}, func(b *testing.B, n int) {
		for _, hold := range []string{"function", "closure", "handle"} {
			b.Run("hold="+hold, func(b *testing.B) {
				names := ours + " RussellLuo heap"
				if hold == "function" {
					names += " wheel.Keyed mutex+map+AfterFunc go-zero"
				}
				subjects, weighApart := apart(pick(setup{pending: n}, names), func(b *testing.B, t timers) {
					once(b, func() {
						weigh(b, t, n, hold)
						if hold == "handle" {
							stopAll(b, t, n)
						}
					})
				})
				compare(b, subjects, weighApart)
			})
		}
	})
}

func weigh(b *testing.B, t timers, n int, hold string) {
	r, sum := random(n), 0
	heap := measure.HeapBytes()
	before := measure.Now()
	if hold == "handle" {
		t.keep(n)
	}
	for i := range n {
		f := noop
		if hold == "closure" {
			f = func() { sum += i }
		}
		t.add(i, farOff(r), f)
	}
	reportCPU(b, before, measure.Now(), n, "add")
	b.ReportMetric((measure.HeapBytes()-heap)/float64(n), "B/timer")
	gc := time.Duration(math.MaxInt64)
	for range 3 {
		before := time.Now()
		runtime.GC()
		gc = min(gc, time.Since(before))
	}
	b.ReportMetric(gc.Seconds()*1000, "collection-ms")
}

func stopAll(b *testing.B, t timers, n int) {
	before := measure.Now()
	t.stop()
	reportCPU(b, before, measure.Now(), n, "stop")
}

// BenchmarkScale takes ten million timers through their life, each with a handle, and a hundred
// million on the wheel alone: package time's are not tried, since they might not fit in 24 GB. It
// starts them, and weighs and collects as BenchmarkMemory does. Then it starts and cancels
// another (hot), and cancels one at random and starts another (random), a tenth as often as there
// are timers. Then it stops all.
func BenchmarkScale(b *testing.B) {
	eachSize(b, []int{10_000_000}, func(b *testing.B, n int) {
		names := ours
		if n > 10_000_000 {
			names = "wheel.Schedule wheel.AfterFunc"
		}
		subjects, f := apart(pick(setup{pending: n}, names), func(b *testing.B, t timers) {
			once(b, func() {
				weigh(b, t, n, "handle")
				r, ops := random(n), n/10+1
				spell := func(thing string, op func()) {
					before := measure.Now()
					for range ops {
						op()
					}
					reportCPU(b, before, measure.Now(), ops, thing)
				}
				t.cancel(0)
				spell("hot", func() {
					t.add(0, farOff(r), noop)
					t.cancel(0)
				})
				t.add(0, farOff(r), noop)
				spell("random", func() {
					i := r.IntN(n)
					t.cancel(i)
					t.add(i, farOff(r), noop)
				})
				stopAll(b, t, n)
			})
		})
		compare(b, subjects, f)
	})
}

// BenchmarkRetained cancels 20,000 timers with a closure of a kilobyte each, and counts the
// closures that are still there after two collections, when no handle is left.
func BenchmarkRetained(b *testing.B) {
	n := size(20_000, 100)
	compare(b, pick(setup{pending: n}, plain), func(b *testing.B, t timers) {
		once(b, func() {
			t.keep(n)
			held := make([]weak.Pointer[[1024]byte], n)
			for i := range n {
				payload := new([1024]byte)
				held[i] = weak.Make(payload)
				t.add(i, time.Hour, func() { payload[0]++ })
			}
			for i := range n {
				t.cancel(i)
			}
			t.keep(1)
			measure.Settle()
			alive := 0
			for _, p := range held {
				if p.Value() != nil {
					alive++
				}
			}
			t.add(0, time.Hour, noop) // the subject is alive until here
			b.ReportMetric(100*float64(alive)/float64(n), "retained-%")
		})
	})
}

// BenchmarkStopped stops 24,000 timers with a closure of 4 KiB each, one by one, in the midst of
// 122,000 that are pending, and weighs what it has added to 50,000 of those: the entries of the
// others are in it. No handle is left. Package time keeps what was stopped until it is more than a
// quarter of the timers of a processor: so it never keeps much more than that.
func BenchmarkStopped(b *testing.B) {
	pending, stopped := size(50_000, 50), size(24_000, 24)
	subjects, f := apart(pick(setup{pending: 122_000}, ours), func(b *testing.B, t timers) {
		once(b, func() {
			t.keep(1) // the handle of the one that is stopped next
			r := random(stopped)
			add := func() { t.add(1, time.Hour+farOff(r), noop) }
			for range pending {
				add()
			}
			heap := measure.HeapBytes()
			for range stopped {
				add()
				add()
				payload := new([4096]byte)
				t.add(0, 90*time.Minute, func() { payload[0]++ })
				add()
				t.cancel(0)
			}
			t.add(0, time.Hour, noop)
			b.ReportMetric((measure.HeapBytes()-heap)/1e6, "kept-MB")
			t.add(0, time.Hour, noop) // the subject is alive until here
		})
	})
	compare(b, subjects, f)
}

// BenchmarkRequest computes for 5 us, and gives that a timeout of 5 s which is canceled at
// the end, on 64 goroutines for each of GOMAXPROCS. The ratio is that of the difference to
// the same without a timeout, the row none.
func BenchmarkRequest(b *testing.B) {
	rounds := spin(5 * time.Microsecond)
	compare(b, pick(setup{}, "none "+plain), func(b *testing.B, t timers) {
		t.keep(64 * 64 * 16)
		parallel(b, 64, func(g int) func() {
			return func() {
				t.add(g*16, 5*time.Second, noop)
				sink.Store(compute(rounds))
				t.cancel(g * 16)
			}
		})
	})
}

// sink keeps the compiler from dropping the work.
var sink atomic.Uint64

// compute keeps one processor busy and touches no memory.
func compute(rounds int) uint64 {
	x := uint64(rounds)
	for range rounds {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// spin returns for how many rounds compute takes about d: by the fastest of several tries.
func spin(d time.Duration) int {
	const rounds = 100_000
	best := time.Duration(math.MaxInt64)
	for range 20 {
		begin := time.Now()
		sink.Store(compute(rounds))
		best = min(best, time.Since(begin))
	}
	return max(1, int(rounds*d/max(best, 1)))
}

// BenchmarkGroup is a connection with three timers that end together: a Group, or a slice
// of timers that a program stops one by one.
func BenchmarkGroup(b *testing.B) {
	const timersEach = 3
	compare(b, []subject[func()]{
		{"time.AfterFunc", func(*testing.B) func() {
			return func() {
				var all []*time.Timer
				for range timersEach {
					all = append(all, time.AfterFunc(time.Minute, noop))
				}
				for _, t := range all {
					t.Stop()
				}
			}
		}},
		{"wheel.Schedule", func(b *testing.B) func() {
			w := newWheel(b)
			return func() {
				var all []timingwheel.Timeout
				for range timersEach {
					t, _ := w.Schedule(time.Minute, noop)
					all = append(all, t)
				}
				for _, t := range all {
					t.Cancel()
				}
			}
		}},
		{"wheel.Group", func(b *testing.B) func() {
			w := newWheel(b)
			return func() {
				g := timingwheel.NewGroup(w)
				for range timersEach {
					g.Schedule(time.Minute, noop)
				}
				g.Stop()
			}
		}},
	}, loop)
}

// newWheel makes a wheel with the defaults, for a benchmark.
func newWheel(b *testing.B, opts ...timingwheel.Option) *timingwheel.TimingWheel {
	w := timingwheel.New(opts...)
	b.Cleanup(func() { w.Stop() })
	return w
}

// BenchmarkKeyed schedules the function of one of 100,000 keys at random, in place of the
// key's function, three times out of four. The fourth time it cancels the key's function. Without
// a Keyed, a program has a mutex, a map and package time's timers.
func BenchmarkKeyed(b *testing.B) {
	n := size(100_000, 100)
	for _, goroutines := range []int{1, 32} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			compare(b, pick(setup{}, "mutex+map+AfterFunc wheel.Keyed"), func(b *testing.B, t timers) {
				parallel(b, goroutines, func(g int) func() {
					r := random(g)
					return func() {
						if key := r.IntN(n); r.IntN(4) == 0 {
							t.cancel(key)
						} else {
							t.add(key, time.Minute, noop)
						}
					}
				})
			})
		})
	}
}
