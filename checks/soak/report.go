package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// totals count what happened on all wheels together.
type totals struct {
	wheels atomic.Int64

	// Each run for which a function was armed ends in one of the five ways that follow.
	tasks                                          atomic.Int64
	ran, canceled, handedBack, discarded, refused  atomic.Int64
	runs, futures, contexts, timers, ticks, panics atomic.Int64
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
func mb(n uint64) string        { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// progress prints one line on the state of the run.
func (s *soak) progress(pending int64, m sample) {
	n, first := s.violations.get()
	fmt.Fprintf(s.out, "%4ds  wheels %d of %d  tasks %d  pending %d  late %v  heap %s  goroutines %d  violations %d\n",
		int(s.now().Seconds()), len(s.all()), s.total.wheels.Load(), s.total.tasks.Load(), pending,
		&s.late, mb(m.heap), m.goroutines, n)
	if n > 0 {
		fmt.Fprintf(s.out, "       first: %s\n", first[0])
	}
}

// report prints the result of the run, and reports whether there were no violations.
func (s *soak) report() bool {
	fmt.Fprintf(s.out, "\n%v, %d wheels\n", s.took.Round(time.Millisecond), s.total.wheels.Load())
	s.reportTotals()
	fmt.Fprintf(s.out, "  lateness, on Goroutines: %v\n", &s.late)
	fmt.Fprintf(s.out, "  lateness of time.AfterFunc beside it: %v\n", &s.control)
	s.steady.report(s.out)
	n, first := s.violations.get()
	fmt.Fprintf(s.out, "  violations: %d\n", n)
	for _, v := range first {
		fmt.Fprintf(s.out, "    %s\n", v)
	}
	return n == 0
}

func (s *soak) reportTotals() {
	s.mu.Lock()
	c := s.counts
	s.mu.Unlock()
	t := &s.total
	for _, line := range []struct {
		name string
		n    int64
	}{
		{"functions armed", t.tasks.Load()},
		{"  ran", t.ran.Load()},
		{"  canceled", t.canceled.Load()},
		{"  handed back", t.handedBack.Load()},
		{"  discarded", t.discarded.Load()},
		{"  refused", t.refused.Load()},
		{"runs of jobs", t.runs.Load()},
		{"futures", t.futures.Load()},
		{"contexts", t.contexts.Load()},
		{"timers with a channel", t.timers.Load()},
		{"ticks", t.ticks.Load()},
		{"panics", t.panics.Load()},
		{"entries scheduled", c.Scheduled},
		{"  fired", c.Fired},
		{"  canceled", c.Canceled},
		{"  handed back", c.HandedBack},
		{"  reset", c.Reset},
		{"  rejected", c.Rejected},
	} {
		fmt.Fprintf(s.out, "  %-28s %12d %10.0f/s\n", line.name, line.n, float64(line.n)/s.took.Seconds())
	}
}
