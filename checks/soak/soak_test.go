package soak

import (
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
	houses   = 4                // at the same time, each with one or two wheels
	longest  = 20 * time.Second // the longest life of a house
	patience = time.Minute      // for what must happen without help
	most     = 20               // violations that are printed, since one fault can break a promise very often
)

// soak is one run.
type soak struct {
	begin    time.Time
	violated func(text string)
	counts   sync.Map // what has happened: of *atomic.Int64, by name
	lives    sync.Map // of *life: the wheels that exist
}

// now returns the time since the start of the run, by the monotonic clock. Every check compares
// with this time.
func (s *soak) now() time.Duration { return time.Since(s.begin) }

func (s *soak) count(name string) *atomic.Int64 {
	n, ok := s.counts.Load(name)
	if !ok {
		n, _ = s.counts.LoadOrStore(name, new(atomic.Int64))
	}
	return n.(*atomic.Int64)
}

func (s *soak) violate(format string, args ...any) { s.violated(fmt.Sprintf(format, args...)) }

// A run breaks no promise. It does everything; on a slow machine it takes longer for that.
func TestSoak(t *testing.T) {
	d := *runFor
	if d == 0 {
		d = time.Second
	}
	for missing := true; missing; d *= 2 {
		var violations atomic.Int64
		s := &soak{begin: time.Now(), violated: func(text string) {
			if violations.Add(1) <= most {
				t.Error(text)
			}
		}}
		s.run(t, d)
		require.Zero(t, violations.Load())
		missing = false
		for _, name := range []string{"ran", "canceled", "handed back", "reset", "run of a job", "future", "context", "timer", "tick"} {
			n := s.count(name).Load()
			t.Logf("%12s %10d", name, n)
			missing = missing || n == 0
		}
		require.True(t, !missing || d < patience, "something has never happened")
	}
}

// run runs for d. One wheel stays from the beginning to the end; the others come and go.
func (s *soak) run(t *testing.T, d time.Duration) {
	g := growth{begin: measure()}
	end := s.begin.Add(d)
	var wg sync.WaitGroup
	wg.Go(func() { s.live(end, nil, shape{tick: time.Millisecond, size: 512, farthest: time.Hour}) })
	for range houses {
		wg.Go(func() {
			for time.Now().Before(end) {
				until := time.Now().Add(100*time.Millisecond + rand.N(min(longest, d/2)))
				s.house(earlier(until, end))
			}
		})
	}
	for ; time.Now().Before(end); time.Sleep(earlier(time.Now().Add(time.Second), end).Sub(time.Now())) {
		for l := range s.lives.Range {
			l.(*life).accounts()
		}
		g.samples = append(g.samples, measure())
	}
	wg.Wait()
	if !wait(func() bool { return runtime.NumGoroutine() <= g.begin.goroutines }) {
		s.violate("%d goroutines are left, %d at the start\n%s", runtime.NumGoroutine(), g.begin.goroutines, stacks())
	}
	runtime.GC() // a sync.Pool, such as each wheel has, keeps its values for one collection
	g.end = measure()
	t.Logf("%v: from %+v to %+v", s.now(), g.begin, g.end)
	g.check(s)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// house makes one wheel, or two that share a Pool, and uses them until end.
func (s *soak) house(end time.Time) {
	a, b := randomShape(), randomShape()
	if p := newPool(a.executor); p != nil {
		b.executor = a.executor
		s.live(end, p, a, b)
	} else {
		s.live(end, nil, a)
	}
}

// wait waits until done returns true, for as long as patience, and reports whether it did.
func wait(done func() bool) bool {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func stacks() []byte {
	buf := make([]byte, 1<<18)
	return buf[:runtime.Stack(buf, true)]
}

// shape is how a wheel is made, and how far off its deadlines are.
type shape struct {
	tick         time.Duration
	size, shards int
	executor     string // of executors, or of pools
	limit        int    // for WithMaxPending; 0 for none
	handler      bool   // there is a panic handler, so functions may panic
	precise      bool   // WithPreciseWakeups
	farthest     time.Duration
}

var executors = map[string]timingwheel.Executor{
	"":       timingwheel.Goroutines(),
	"inline": timingwheel.Inline(),
	"func":   timingwheel.ExecutorFunc(func(f func()) { f() }),
	"go":     timingwheel.ExecutorFunc(func(f func()) { go f() }),
}

const (
	poolCallerRuns = "pool, caller runs"
	poolWait       = "pool, wait"
	poolDiscard    = "pool, discard"
)

func pick[T any](from ...T) T { return from[rand.IntN(len(from))] }

func randomShape() shape {
	return shape{
		tick:     pick(time.Microsecond, 50*time.Microsecond, time.Millisecond, time.Millisecond),
		size:     pick(2, 4, 512, 512),
		shards:   pick(0, 0, 1, 4),
		executor: pick("", "inline", "func", "go", poolCallerRuns, poolWait, poolDiscard),
		limit:    pick(0, 0, 0, 1+rand.IntN(5000)),
		handler:  pick(true, false),
		precise:  pick(true, false, false, false),
		farthest: pick(40*time.Millisecond, 2*time.Second, time.Hour),
	}
}

// mayBlock reports whether functions may sleep. A function that runs on the driver must not.
func (s shape) mayBlock() bool {
	return slices.Contains([]string{"", "go", poolWait, poolDiscard}, s.executor)
}

// String leaves out the shape's fields that are not needed to make it again.
func (s shape) String() string { type fields shape; return fmt.Sprintf("%+v", fields(s)) }

// options returns the options for New. P is the executor if it is not nil.
func (s shape) options(p *keptPool, handler func(any, []byte)) []timingwheel.Option {
	executor := executors[s.executor]
	if p != nil {
		executor = p.Pool
	}
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

// keptPool is a Pool that keeps the functions it discards. They are called at the end, to learn
// which they are. Before that, such a call could be mistaken for a run.
type keptPool struct {
	*pool.Pool
	mu   sync.Mutex
	kept []func() // guarded by mu
}

// newPool returns nil for an executor that is none.
func newPool(executor string) *keptPool {
	p := &keptPool{}
	full, ok := map[string]pool.WhenFull{poolWait: pool.Wait, poolCallerRuns: pool.CallerRuns, poolDiscard: pool.Discard(p.keep)}[executor]
	if !ok {
		return nil
	}
	p.Pool = pool.New(1+rand.IntN(8), rand.IntN(64), full)
	return p
}

func (p *keptPool) keep(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, f)
}

// end closes the pool. It is a violation if that does not return.
func (p *keptPool) end(s *soak) {
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		s.violate("Pool.Close does not return\n%s", stacks())
	}
}

// sample is what the process holds at one moment.
type sample struct{ heap, goroutines, files int } // Files are 0 where the system does not tell.

func measure() sample {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/proc/self/fd")
	return sample{int(m.HeapAlloc), runtime.NumGoroutine(), len(files)}
}

// growth finds out whether what the process holds grows. One sample says little, because wheels
// come and go, so the smallest samples of two quarters of the run are compared.
type growth struct {
	begin, end sample
	samples    []sample // one a second
}

const (
	slackHeap  = 8 << 20 // for chance, and for the soak's own accounts
	slackRun   = 100     // goroutines
	slackFiles = 4       // the runtime opens some when it first needs them
)

// check compares the last quarter with the second, since everything grows in the first, and the
// end with the start: at the end all wheels are gone.
func (g *growth) check(s *soak) {
	if g.end.heap > g.begin.heap+slackHeap || g.end.files > g.begin.files+slackFiles {
		s.violate("memory or files are left: %+v, %+v at the start", g.end, g.begin)
	}
	n := len(g.samples)
	if n < 40 { // fewer do not give each quarter wheels of all kinds
		return
	}
	second, last := least(g.samples[n/4:n/2]), least(g.samples[n*3/4:])
	if last.heap > second.heap*3/2+slackHeap || last.goroutines > second.goroutines*3/2+slackRun {
		s.violate("the process grows: at least %+v in the last quarter, %+v in the second", last, second)
	}
}

// least returns the smallest of each field.
func least(samples []sample) sample {
	m := samples[0]
	for _, s := range samples {
		m.heap, m.goroutines = min(m.heap, s.heap), min(m.goroutines, s.goroutines)
	}
	return m
}

// Growth of memory, goroutines and open files is a violation.
func TestGrowthIsSeen(t *testing.T) {
	few, many := sample{heap: 20 << 20, goroutines: 200}, sample{}
	for want, c := range map[string]struct {
		step sample // by which each sample is larger than the one before
		end  sample
	}{
		"none":       {end: few},
		"heap":       {step: sample{heap: 1 << 20}, end: few},
		"goroutines": {step: sample{goroutines: 10}, end: few},
		"memory":     {end: sample{heap: 40 << 20}},
		"files":      {end: sample{files: 9}},
	} {
		g := growth{begin: few, end: c.end}
		for i := range 100 {
			many = sample{few.heap + i%10<<20 + i*c.step.heap, few.goroutines + i%50 + i*c.step.goroutines, 0}
			g.samples = append(g.samples, many)
		}
		seen := 0
		g.check(&soak{violated: func(string) { seen++ }})
		require.Equal(t, want != "none", seen > 0, want)
	}
}
