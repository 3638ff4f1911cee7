package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	houses  = 4                // at a time, each with a wheel or two
	longest = 20 * time.Second // that a house stands

	// patience is how long the soak waits for what must come about by itself.
	patience = time.Minute
)

// soak is one run.
type soak struct {
	begin time.Time
	took  time.Duration
	out   io.Writer

	violations violations
	late       quantiles // of functions on Goroutines, which delay nobody
	control    quantiles // the same of package time: what the machine makes late
	steady     steady

	tasks, ran, cancelled, handedBack, discarded, refused atomic.Int64
	wheels, runs, futures, contexts, timers, ticks        atomic.Int64
	panics                                                atomic.Int64

	mu     sync.Mutex
	lives  map[*life]bool // guarded by mu
	counts timingwheel.Counts
}

func newSoak(out io.Writer) *soak {
	return &soak{begin: time.Now(), out: out, lives: make(map[*life]bool)}
}

// now is the time that all is checked against: that of the monotonic clock.
func (s *soak) now() time.Duration { return time.Since(s.begin) }

// run lets wheels come and go for so long, but for one that stays from begin to end, and
// looks at all of them every second.
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

// compare has package time run functions as the wheels do, a thousand a second.
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

// watch looks at the accounts of every wheel, and at memory, once a second until all are
// gone, which is some time after their end.
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

func (s *soak) all() (lives []*life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.lives {
		lives = append(lives, l)
	}
	return lives
}

// settle waits until nothing is left of the wheels, and then compares memory and
// goroutines with what they were.
func (s *soak) settle() {
	if !wait(func() bool { return runtime.NumGoroutine() <= s.steady.begin.goroutines }) {
		s.violations.add("%d goroutines are left, %d at the begin\n%s",
			runtime.NumGoroutine(), s.steady.begin.goroutines, stacks())
	}
	s.steady.end = measure()
	s.steady.check(&s.violations)
}

// violations are what does not hold.
type violations struct {
	mu    sync.Mutex
	count int
	first []string // no more than keepViolations
}

const keepViolations = 20

func (v *violations) add(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count++
	if len(v.first) < keepViolations {
		v.first = append(v.first, fmt.Sprintf(format, args...))
	}
}

func (v *violations) get() (count int, first []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count, v.first
}

// wait waits for what must come about by itself, and reports whether it has.
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

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
