package soak

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
