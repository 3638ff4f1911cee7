package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

const (
	houses  = 4                // at the same time, each with one or two wheels
	longest = 20 * time.Second // the longest life of a house

	// patience is how long the soak waits for what must happen without its help.
	patience = time.Minute
)

// soak is one run of the command.
type soak struct {
	begin      time.Time
	took       time.Duration
	out        io.Writer
	violations violations
	total      totals
	steady     steady
	lives      sync.Map // of *life: the wheels that exist
}

func newSoak(out io.Writer) *soak { return &soak{begin: time.Now(), out: out} }

// now returns the time since the start of the run, by the monotonic clock. Every check
// compares with this time.
func (s *soak) now() time.Duration { return time.Since(s.begin) }

// run runs for d. One wheel stays from the beginning to the end; the others come and go.
func (s *soak) run(d time.Duration) {
	s.steady.begin = measure()
	end := s.begin.Add(d)
	var wg sync.WaitGroup
	wg.Go(func() { s.live(end, []shape{{tick: time.Millisecond, size: 512, farthest: time.Hour}}, nil) })
	for range houses {
		wg.Go(func() {
			for time.Now().Before(end) {
				until := time.Now().Add(100*time.Millisecond + time.Duration(rand.Int64N(int64(min(longest, d/2)))))
				if until.After(end) {
					until = end
				}
				s.house(until)
			}
		})
	}
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { s.watch(end, done) })
	wg.Wait()
	close(done)
	watcher.Wait()
	s.took = s.now()
	s.settle()
}

// house makes one wheel, or two that share a Pool, and uses them until end.
func (s *soak) house(end time.Time) {
	a, b := randomShape(), randomShape()
	if b.executor = a.executor; a.hasPool() {
		s.live(end, []shape{a, b}, newPool(a.executor))
	} else {
		s.live(end, []shape{a}, nil)
	}
}

// watch checks the accounts of every wheel and measures memory, once a second, until
// done is closed. That is some time after end: the wheels need time to go. Only what is
// measured before end is kept, because the process shrinks after it.
func (s *soak) watch(end time.Time, done chan struct{}) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-done:
			return
		case <-second.C:
			wheels, pending := 0, int64(0)
			for l := range s.lives.Range {
				wheels++
				pending += l.(*life).checkAccounts().Pending
			}
			m := measure()
			if time.Now().Before(end) {
				s.steady.add(m)
			}
			fmt.Fprintf(s.out, "%4ds  wheels %d of %d  tasks %d  pending %d  heap %s  goroutines %d\n",
				int(s.now().Seconds()), wheels, s.total.wheels.Load(), s.total.tasks.Load(), pending, mb(m.heap), m.goroutines)
			s.violations.report(s.out, 1)
		}
	}
}

// settle waits until nothing is left of the wheels. Then it compares memory and
// goroutines with those at the start.
func (s *soak) settle() {
	if !wait(func() bool { return runtime.NumGoroutine() <= s.steady.begin.goroutines }) {
		s.violations.add("%d goroutines are left, %d at the start\n%s",
			runtime.NumGoroutine(), s.steady.begin.goroutines, stacks())
	}
	runtime.GC() // a sync.Pool, such as each wheel has, keeps its values for one collection
	s.steady.end = measure()
	s.steady.check(&s.violations)
}

// wait waits until done returns true, for as long as patience, and reports whether it
// did.
func wait(done func() bool) bool {
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// stacks returns the stacks of all goroutines, for the report of a violation.
func stacks() []byte {
	buf := make([]byte, 1<<18)
	return buf[:runtime.Stack(buf, true)]
}
