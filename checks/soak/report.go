package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// totals count what happened on all wheels together.
type totals struct {
	wheels, reset atomic.Int64

	// Each run for which a function was armed ends in one of the five ways that follow.
	tasks                                         atomic.Int64
	ran, canceled, handedBack, discarded, refused atomic.Int64

	runs, futures, contexts, timers, ticks, panics atomic.Int64
}

// report prints the result of the run, and reports whether there were no violations.
func (s *soak) report() bool {
	fmt.Fprintf(s.out, "\n%v\n", s.took.Round(time.Millisecond))
	t := &s.total
	for _, line := range []struct {
		name string
		n    *atomic.Int64
	}{
		{"wheels", &t.wheels}, {"functions armed", &t.tasks},
		{"  ran", &t.ran}, {"  canceled", &t.canceled}, {"  handed back", &t.handedBack}, {"  discarded", &t.discarded}, {"  refused", &t.refused},
		{"reset", &t.reset}, {"runs of jobs", &t.runs}, {"futures", &t.futures}, {"contexts", &t.contexts},
		{"timers with a channel", &t.timers}, {"ticks", &t.ticks}, {"panics", &t.panics},
	} {
		fmt.Fprintf(s.out, "  %-28s %12d %10.0f/s\n", line.name, line.n.Load(), float64(line.n.Load())/s.took.Seconds())
	}
	s.steady.report(s.out)
	return s.violations.report(s.out, keepViolations) == 0
}

// keepViolations is how many violations are kept in words. The others are only counted,
// since one fault can break a promise very often.
const keepViolations = 20

// violations are the promises that were found broken.
type violations struct {
	mu    sync.Mutex
	count int      // guarded by mu
	first []string // guarded by mu; at most keepViolations
}

func (v *violations) add(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.count++
	if len(v.first) < keepViolations {
		v.first = append(v.first, fmt.Sprintf(format, args...))
	}
}

// report prints how many there are, and the first ones, of so many at most.
func (v *violations) report(out io.Writer, most int) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(out, "  violations: %d\n", v.count)
	for _, text := range v.first[:min(most, len(v.first))] {
		fmt.Fprintf(out, "    %s\n", text)
	}
	return v.count
}

func mb(n uint64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }
