package soak

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

var runFor = flag.Duration("for", 0, "how long TestSoak runs; 0: until each thing has happened")

const (
	houses   = 3                // at the same time, each with two wheels
	longest  = 20 * time.Second // the longest life of a house
	patience = time.Minute      // for what must happen without help
	most     = 20               // violations that are printed, since one fault can break a promise very often
)

// soak is one run.
type soak struct {
	report     func(args ...any)
	violations atomic.Int64

	mu     sync.Mutex
	counts map[string]int // guarded by mu; how often each thing has happened
}

func newSoak(report func(args ...any)) *soak {
	return &soak{report: report, counts: map[string]int{}}
}

func (s *soak) count(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[name]++
}

func (s *soak) violate(format string, args ...any) {
	if s.violations.Add(1) <= most {
		s.report(fmt.Sprintf(format, args...))
	}
}

// A run breaks no promise. It does everything; on a slow machine it takes longer for that.
func TestSoak(t *testing.T) {
	for d := cmp.Or(*runFor, time.Second); ; d *= 2 {
		s := newSoak(t.Error)
		s.run(t, d)
		require.Zero(t, s.violations.Load())
		t.Log(s.counts)
		missing := slices.DeleteFunc(
			[]string{"ran", "canceled", "handed back", "reset", "run of a job", "future", "context", "timer", "tick"},
			func(name string) bool { return s.counts[name] > 0 })
		if len(missing) == 0 {
			return
		}
		require.Less(t, d, patience, "%v has never happened", missing)
	}
}

// run runs for d. One wheel stays from the beginning to the end; the others come and go.
func (s *soak) run(t *testing.T, d time.Duration) {
	g := growth{begin: measure()}
	end := time.Now().Add(d)
	left := func() time.Duration { return time.Until(end) }
	var wg sync.WaitGroup
	wg.Go(func() {
		s.house(d, shape{tick: time.Millisecond, size: 512, executor: "goroutines", farthest: time.Hour})
	})
	for range houses {
		wg.Go(func() {
			for left() > 0 {
				a, b := randomShape(), randomShape()
				b.executor = a.executor
				s.house(min(left(), 100*time.Millisecond+rand.N(min(longest, d/2))), a, b)
			}
		})
	}
	for ; left() > 0; time.Sleep(min(left(), time.Second)) {
		g.samples = append(g.samples, measure())
	}
	wg.Wait()
	ends("a goroutine", func() {
		for runtime.NumGoroutine() > g.begin[goroutines] {
			time.Sleep(time.Millisecond)
		}
	})
	runtime.GC() // a sync.Pool, such as each wheel has, keeps its values for one collection
	g.end = measure()
	t.Logf("memory, goroutines and files: from %v to %v", g.begin, g.end)
	g.check(s)
}

// ends calls f, and ends the test with all stacks if f does not return.
func ends(what string, f func()) {
	defer time.AfterFunc(patience, func() {
		buf := make([]byte, 1<<18)
		panic(fmt.Sprintf("%s does not end\n%s", what, buf[:runtime.Stack(buf, true)]))
	}).Stop()
	f()
}

// shape is how a wheel is made, and how far off its deadlines are.
type shape struct {
	tick         time.Duration
	size, shards int
	executor     string // of newExecutor
	limit        int    // for WithMaxPending; 0 for none
	handler      bool   // there is a panic handler, so functions may panic
	precise      bool   // WithPreciseWakeups
	farthest     time.Duration
}

func pick[T any](from ...T) T { return from[rand.IntN(len(from))] }

func randomShape() shape {
	return shape{
		tick:     pick(time.Microsecond, 50*time.Microsecond, time.Millisecond, time.Millisecond),
		size:     pick(2, 4, 512, 512),
		shards:   pick(0, 0, 1, 4),
		executor: pick("goroutines", "inline", "func", "go", "pool, waits", "pool, caller runs", "pool, discards"),
		limit:    pick(0, 0, 0, 1+rand.IntN(5000)),
		handler:  pick(true, false),
		precise:  pick(true, false, false, false),
		farthest: pick(40*time.Millisecond, 2*time.Second, time.Hour),
	}
}

// newExecutor makes the executor of a house, all of whose wheels share it. Keep gets the functions
// that it discards.
func newExecutor(name string, keep func(f func())) timingwheel.Executor {
	workers, queue := 1+rand.IntN(8), rand.IntN(64)
	switch name {
	case "inline":
		return timingwheel.Inline()
	case "func":
		return timingwheel.ExecutorFunc(func(f func()) { f() })
	case "go":
		return timingwheel.ExecutorFunc(func(f func()) { go f() })
	case "pool, waits":
		return pool.New(workers, queue, pool.Wait)
	case "pool, caller runs":
		return pool.New(workers, queue, pool.CallerRuns)
	case "pool, discards":
		return pool.New(workers, queue, pool.Discard(keep))
	}
	return timingwheel.Goroutines()
}

// mayBlock reports whether functions may sleep. A function that runs on the driver must not.
func (s shape) mayBlock() bool {
	return slices.Contains([]string{"goroutines", "go", "pool, waits", "pool, discards"}, s.executor)
}

func (s shape) options(executor timingwheel.Executor, handler func(any, []byte)) []timingwheel.Option {
	opts := []timingwheel.Option{
		timingwheel.WithTick(s.tick), timingwheel.WithWheelSize(s.size), timingwheel.WithShards(s.shards),
		timingwheel.WithMaxPending(s.limit), timingwheel.WithExecutor(executor),
	}
	if s.precise {
		opts = append(opts, timingwheel.WithPreciseWakeups())
	}
	if s.handler {
		opts = append(opts, timingwheel.WithPanicHandler(handler))
	}
	return opts
}

// sample is what the process holds at one moment.
type sample [3]int

const heap, goroutines, files = 0, 1, 2 // of a sample. Files are 0 where the system does not tell.

// slack is for chance, for the soak's own accounts, and for files that the runtime opens when it
// first needs them.
var slack = sample{heap: 8 << 20, goroutines: 100, files: 4}

func measure() sample {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, _ := os.ReadDir("/proc/self/fd")
	return sample{heap: int(m.HeapAlloc), goroutines: runtime.NumGoroutine(), files: len(fds)}
}

// growth finds out whether what the process holds grows. One sample says little, because wheels
// come and go, so the smallest samples of two quarters of the run are compared.
type growth struct {
	begin, end sample
	samples    []sample // one a second
}

// check compares the last quarter with the second, since everything grows in the first, and the
// end with the start: at the end all wheels are gone.
func (g *growth) check(s *soak) {
	n := len(g.samples)
	for i, slack := range slack {
		if g.end[i] > g.begin[i]+slack {
			s.violate("memory or files are left: %v, %v at the start", g.end, g.begin)
		}
		least := func(samples []sample) int {
			return slices.MinFunc(samples, func(a, b sample) int { return a[i] - b[i] })[i]
		}
		if n < 40 { // fewer do not give each quarter wheels of all kinds
			continue
		}
		if second, last := least(g.samples[n/4:n/2]), least(g.samples[n*3/4:]); last > second*3/2+slack {
			s.violate("the process grows: at least %d in the last quarter, %d in the second", last, second)
		}
	}
}

// Growth of memory, goroutines and open files is a violation.
func TestGrowthIsSeen(t *testing.T) {
	few := sample{heap: 20 << 20, goroutines: 200}
	for want, c := range map[string]struct{ step, end sample }{ // step: by which each sample is larger than the one before
		"none":       {end: few},
		"heap":       {step: sample{heap: 1 << 20}, end: few},
		"goroutines": {step: sample{goroutines: 10}, end: few},
		"memory":     {end: sample{heap: 40 << 20}},
		"files":      {end: sample{files: 9}},
	} {
		g := growth{begin: few, end: c.end}
		for i := range 100 {
			g.samples = append(g.samples, sample{few[heap] + i%10<<20 + i*c.step[heap], few[goroutines] + i%50 + i*c.step[goroutines]})
		}
		s := newSoak(t.Log)
		g.check(s)
		require.Equal(t, want != "none", s.violations.Load() > 0, want)
	}
}
