package main

import (
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	houses  = 4                // at the same time, each with one or two wheels
	longest = 20 * time.Second // the longest life of a house

	// patience is how long the soak waits for what must happen without its help.
	patience = time.Minute
)

// soak is one run of the command.
type soak struct {
	begin time.Time
	took  time.Duration
	out   io.Writer

	violations violations
	total      totals
	late       quantiles // of functions on Goroutines, where no function delays another
	control    quantiles // of functions of package time, to show what the machine adds
	steady     steady

	mu     sync.Mutex
	lives  map[*life]bool     // guarded by mu
	counts timingwheel.Counts // guarded by mu; the sum over the wheels that are gone
}

func newSoak(out io.Writer) *soak {
	return &soak{begin: time.Now(), out: out, lives: make(map[*life]bool)}
}

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
				stands := 100*time.Millisecond + time.Duration(rand.Int64N(int64(min(longest, d/2))))
				s.house(earlier(end, time.Now().Add(stands)))
			}
		})
	}
	var watcher sync.WaitGroup
	done := make(chan struct{})
	watcher.Go(func() { s.watch(end, done) })
	watcher.Go(func() { s.compare(done) })
	wg.Wait()
	close(done)
	watcher.Wait()
	s.took = s.now()
	s.settle()
}

// compare runs functions on package time with delays like those on the wheels, one
// thousand a second, until done is closed.
func (s *soak) compare(done chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
			d := time.Duration(rand.Int64N(1 << 25))
			due := s.now() + d
			time.AfterFunc(d, func() { s.control.add(s.now() - due) })
		}
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
			pending := int64(0)
			for _, l := range s.all() {
				pending += l.checkAccounts().Pending
			}
			m := measure()
			if time.Now().Before(end) {
				s.steady.add(m)
			}
			s.progress(pending, m)
		}
	}
}

// all returns the lives of the wheels that exist now.
func (s *soak) all() (lives []*life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.lives {
		lives = append(lives, l)
	}
	return lives
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

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
