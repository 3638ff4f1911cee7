package main

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Each subject runs all timers that stay pending, and runs them once. A timer that was canceled
// or reset in time does not run, or not before its new deadline. The other libraries fire early
// and lose time while the machine is busy: they may fail for some timers, but not for most.
func TestSubjects(t *testing.T) {
	for _, s := range starters {
		if s.name == "none" || s.byHand {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			bear := 0
			if slices.Contains([]string{"RussellLuo", "go-zero", "gost"}, s.name) {
				bear = timersOfTest / 3
			}
			timers := s.start(setup{})
			defer timers.stop()
			if missing, wrong := startAndEnd(timers); missing > bear || wrong > bear {
				t.Errorf("of %d timers %d have not run, and %d have run early or too often", timersOfTest, missing, wrong)
			}
		})
	}
}

const timersOfTest = 300

// startAndEnd starts timers, cancels a third of them and resets another third. A timer that may
// have been due before that was done may run both times.
func startAndEnd(t timers) (missing, wrong int) {
	const n, first, later, early = timersOfTest, 500 * time.Millisecond, time.Second, 30 * time.Millisecond
	t.keep(n)
	var runs, last [n]atomic.Int64
	least, most, notBefore := [n]int64{}, [n]int64{}, [n]time.Duration{}
	begin := time.Now()
	f := func(i int) func() {
		return func() {
			last[i].Store(int64(time.Since(begin)))
			runs[i].Add(1)
		}
	}
	for i := range n {
		t.add(i, first, f(i))
	}
	for i := range n {
		least[i], most[i] = 1, 1
		switch i % 3 {
		case 1:
			t.cancel(i)
			least[i], most[i] = 0, 0
		case 2:
			t.reset(i, later, f(i))
			notBefore[i] = later - early
		}
		if i%3 != 0 && time.Since(begin) > first-early { // too late
			most[i]++
		}
	}
	lacking := func() (lacking int) {
		for i := range n {
			if runs[i].Load() < least[i] {
				lacking++
			}
		}
		return lacking
	}
	for end := time.Now().Add(time.Minute); lacking() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	for i := range n {
		if most[i] == least[i] && (runs[i].Load() > most[i] || time.Duration(last[i].Load()) < notBefore[i] && least[i] > 0) {
			wrong++
		}
	}
	return lacking(), wrong
}

// The plan of the mix has its shares, and works on no timer that is not pending.
func TestPlan(t *testing.T) {
	steps := plan(1000, 10*time.Second, 2*time.Second)
	counts := map[action]int{}
	pending := map[int]bool{}
	for i, s := range steps {
		counts[s.do]++
		begins := s.do == start || s.do == startToFire
		if i > 0 && s.at < steps[i-1].at || begins == pending[s.timer] {
			t.Fatalf("step %d: %+v", i, s)
		}
		pending[s.timer] = s.do != cancel
	}
	for do, share := range map[action]float64{startToFire: 0.1, reset: 0.2, cancel: 0.9} {
		if got := float64(counts[do]) / 10_000; math.Abs(got-share) > 0.02 {
			t.Errorf("action %d has a share of %v, want %v", do, got, share)
		}
	}
}

// What -pending takes is what the names of benchmarks have.
func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 300: "300", 1200: "1200", 10_000: "10k", 1_000_000: "1M", 2_500_000: "2500k"} {
		if got := count(n); got != want {
			t.Errorf("%d is written %q, want %q", n, got, want)
		}
		if got, err := parseCount(want); got != n || err != nil {
			t.Errorf("%q is read as %d, %v", want, got, err)
		}
	}
	for _, bad := range strings.Fields("x 1x 1kk k -") {
		if n, err := parseCount(bad); err == nil {
			t.Errorf("%q is read as %d", bad, n)
		}
	}
}
